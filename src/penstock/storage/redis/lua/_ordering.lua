-- The order, its lanes, and what is due: for claims and ends, before they need the rest.

local function rank(priority, time, seq) return pack('>I4I6I6', 2147483647 - priority, time, seq) end

-- Sorts as the group's bytes do, and no group's prefix starts another's: NUL is escaped, NUL NUL ends.
local function lane_prefix(group)
  if string.find(group, '\0', 1, true) then group = string.gsub(group, '%z', '\0\255') end
  return group .. '\0\0'
end

-- Where the id begins in the members of a lane.
local function id_at(group)
  return (string.find(group, '\0', 1, true) and #lane_prefix(group) or #group + 2) + 13
end

-- The first members of a lane. (The server formats numbers slowly: better a '1' than a 1.)
local function lane_head(q, group, limit)
  if string.find(group, '\0', 1, true) then group = sub(lane_prefix(group), 1, -3) end
  return call('ZRANGEBYLEX', q.lanes, '[' .. group .. '\0\0', '(' .. group .. '\0\1', 'LIMIT', '0', limit)
end

-- A turn is a group's member of ready, or of parked (which is a byte longer), and behind the first the head of
-- its lane, if that is known, so that a claim need not look for it: whatever else changes a lane forgets it.
local function member_of(turn, group) return sub(turn, 1, 17 + #group) end
local function known_head(turn, group) return turn and #turn > 18 + #group and sub(turn, 18 + #group) or nil end

-- The run of a job of a lane, which nobody has asked anything of yet; and the group of such a run ('' for none),
-- else nil.
local LANE_RUN = pack('>BBI6', 0, 0, 1)
local function lane_run(token, group) return token .. LANE_RUN .. pack('>H', #group) .. group .. '\0' end
local function lane_of(run, token)
  if string.find(run, token, 1, true) ~= 1 or string.find(run, LANE_RUN, 17, true) ~= 17 then return nil end
  local high, low = byte(run, 25, 26)
  local size = high * 256 + low
  return byte(run, 27 + size) == 0 and sub(run, 27, 26 + size) or nil
end

-- When the next job falls due, or nil.
local function next_due(q)
  if call('EXISTS', q.scheduled, q.retrying) == 0 then return nil end
  local due
  for _, line in ipairs({ q.scheduled, q.retrying }) do
    local head = call('ZRANGE', line, '0', '0')[1]
    local at = head and unpack_head('>I6', head)
    if at and (not due or at < due) then due = at end
  end
  return due
end

-- Runs of these groups are over, in this order. Each group has so many holders less; those with work and no
-- other holder join the rotation, in the order in which their last runs ended.
local function free_groups(q, ended)
  local groups, count = {}, {}
  for i = #ended, 1, -1 do
    local group = ended[i]
    if not count[group] then groups[#groups + 1] = group end
    count[group] = (count[group] or 0) + 1
  end
  local holds, free = call('HMGET', q.holds, unpack(groups)), {}
  for i = #groups, 1, -1 do
    local left = tonumber(holds[i] or 0) - count[groups[i]]
    if left > 0 then
      call('HSET', q.holds, groups[i], left)
    else
      free[#free + 1] = groups[i]
    end
  end
  if #free == 0 then return end
  call('HDEL', q.holds, unpack(free))
  local seq, ready, turns = call('HINCRBY', q.meta, 'seq', #free) - #free, {}, {}
  for i, group in ipairs(free) do
    local head = lane_head(q, group, '1')[1]
    if head then
      local at, member = #ready, rank(0, now, seq + i) .. 'g' .. group
      ready[at + 1], ready[at + 2] = '0', member
      turns[at + 1], turns[at + 2] = group, member .. head
    end
  end
  if #ready == 0 then return end
  call('ZADD', q.ready, unpack(ready))
  call('HSET', q.turns, unpack(turns))
  wake(q)
end
