-- Repairs of damage that no other script meets: purge makes them every now and then, with a few commands if all is well.

local LINES = { 'ready', 'scheduled', 'retrying', 'lanes', 'parked', 'backoffs', 'expiring', 'completed', 'failed',
  'cancelled', 'suspended' }

-- The members of a line are ordered by their bytes, which needs one score for all of them.
local function repair_scores(q, line)
  for _, range in ipairs({ { '-inf', '(0' }, { '(0', '+inf' } }) do
    if call('ZCOUNT', line, range[1], range[2]) > 0 then
      local members = call('ZRANGEBYSCORE', line, range[1], range[2], 'LIMIT', 0, PROMOTE)
      for _, member in ipairs(members) do call('ZADD', line, 0, member) end
      damaged(q, #members)
    end
  end
end

-- A run whose token has no lease would never be taken back if its worker does not come back. It gets a lease again, within
-- which a living worker can renew or settle it. A run whose token is not whole gets a token of no worker.
local LOST_TOKEN, NEW_LEASE_MS = string.rep('\0', 16), 60000
local function lease_again(q, id, run)
  local token = sub(run, 1, 16)
  if #token == 16 and call('ZSCORE', q.leases, token) then return end
  if #token < 16 then
    local r = run_of(q, id, run)
    r.token, token = LOST_TOKEN, LOST_TOKEN
    call('HSET', q.runs, id, build_run(r))
  end
  damaged(q, 1)
  call('HDEL', q.batches, 'b' .. token, 'p' .. token) -- `ids_of` finds the runs
  call('HSET', q.batches, 'n' .. token, #find_runs(q, token))
  call('ZADD', q.leases, now + NEW_LEASE_MS, token, now - LONG_AGO, '!' .. token)
end

-- Each lease has the number of its runs, and a second member by which they are listed. If there are more runs than these
-- in all, some have no lease.
local function repair_leases(q)
  local tokens, counters, held = {}, {}, 0
  for _, member in ipairs(call('ZRANGEBYSCORE', q.leases, 0, '+inf', 'LIMIT', 0, PROMOTE)) do
    if #member == 16 then tokens[#tokens + 1], counters[#counters + 1] = member, 'n' .. member end
  end
  if #tokens == PROMOTE then return end
  for _, n in ipairs(#tokens > 0 and call('HMGET', q.batches, unpack(counters)) or {}) do held = held + to_number(n) end
  if call('HLEN', q.runs) > held then each_run(q, function(id, run) lease_again(q, id, run) end) end
  if call('ZCOUNT', q.leases, '-inf', '(0') < #tokens then
    for _, token in ipairs(tokens) do call('ZADD', q.leases, 'NX', now - LONG_AGO, '!' .. token) end
  end
end

local function repair(q)
  for _, line in ipairs(LINES) do repair_scores(q, q[line]) end
  repair_leases(q)
  if call('EXISTS', q.parked) == 1 then reset_parked(q) end
  if call('EXISTS', q.expiring) == 1 then reset_expiry(q) end
end

-- The entries of the first schedules by name are compared with their records: each record has all of its entries.
local function repair_schedules(q)
  repair_scores(q, q.ticks)
  for _, name in ipairs(call('HLEN', q.schedules) <= 100 and call('HKEYS', q.schedules) or {}) do
    local s = parse_schedule(spend(call('HGET', q.schedules, name)))
    local missing = s and list_schedule(q, name, s) or 0
    if missing > 0 then damaged(q, missing) end
    if budget <= 0 then break end
  end
end
