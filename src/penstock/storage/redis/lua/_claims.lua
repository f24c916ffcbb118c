-- The runs of a queue in the order in which they began, claim by claim. Each claim has a second member in `leases`: '!'
-- and its token, with a score below 0 that grows with the time of the claim, before all leases.

local MAX_IDS = 5000 -- the ids that one call looks up at most; a claim has up to MAX_BATCH, most of which may have ended

-- The rank of the first claim after this one, which has ended since. It is put back for the moment: so the server
-- searches, and not this script.
local function rank_after(q, begun, member)
  call('ZADD', q.leases, begun - LONG_AGO, member)
  local rank = call('ZRANK', q.leases, member)
  call('ZREM', q.leases, member)
  return rank
end

-- Where to go on after a position ('' is the first): the rank of a claim, and the number of its ids before.
local function start_of(q, after)
  if #after < 11 then return 0, 0 end
  local begun, index = unpack_head('>I6I4', after)
  local member = '!' .. sub(after, 11)
  local rank = call('ZRANK', q.leases, member)
  if rank then return rank, index end
  return rank_after(q, begun, member), 0
end

-- The ids of a lease, and their runs. Those that have ended, or run under another token, have none.
local function runs_of(q, lease)
  local ids, token = ids_of(q, lease), sub(lease, 1, 16)
  local last = math.min(#ids, MAX_BATCH)
  local runs = last > 0 and call('HMGET', q.runs, unpack(ids, 1, last)) or {}
  for i = 1, last do
    if runs[i] and not ran_under(q, runs[i], token) then runs[i] = false end
  end
  return ids, runs
end

-- Call `visit` with id, run and position of the runs after a position, until it gives false or MAX_IDS ids were looked
-- up. Gives the position to go on after, or nil at the end.
local function walk_runs(q, after, visit)
  local rank, skip = start_of(q, after)
  local left = MAX_IDS
  while true do
    local claims = call('ZRANGE', q.leases, rank, rank + 99, 'WITHSCORES')
    for at = 1, #claims, 2 do
      local token, score = sub(claims[at], 2), tonumber(claims[at + 1])
      if score >= 0 then return nil end
      local ids, runs = runs_of(q, token)
      if #ids == 0 then call('ZREM', q.leases, claims[at]) end -- it is damaged
      for i = skip + 1, #runs do
        local position = pack('>I6I4', score + LONG_AGO, i) .. token
        if runs[i] and not visit(ids[i], runs[i], position) then return position end
      end
      left, skip = left - #runs - 1, 0
      if left <= 0 then return pack('>I6I4', score + LONG_AGO, #runs) .. token end
    end
    if #claims < 200 then return nil end
    rank = rank + 100
  end
end
