-- reap: running with its lease over -> queued at its place with stalls + 1, or cancelled if asked to
-- uses: moves
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds leases batches cancelled failed meta waits wake
-- args: limit
-- gives: {id, state, worker, ...}
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local gives, late = {}, {}

-- Collect first, whole leases at a time; then take back in the order in which they ran out.
for _, member in ipairs(call('ZRANGEBYSCORE', q.leases, '-inf', now, 'LIMIT', 0, limit)) do
  if #late >= limit then break end
  local token, until_ms = sub(member, 1, 16), tonumber(call('ZSCORE', q.leases, member))
  local ids = cmsgpack.unpack(call('HGET', q.batches, 'b' .. member) or cmsgpack.pack({}))
  local spared = {}
  if member == token then -- those that were split off have a deadline of their own
    local split = call('HGET', q.batches, 'b' .. token .. '~')
    local split_until = split and tonumber(call('ZSCORE', q.leases, token .. '~') or 0)
    if split and split_until > now then
      for _, id in ipairs(cmsgpack.unpack(split)) do spared[id] = true end
    end
  else -- those that their holder names live on with the token
    for _, id in ipairs(ids) do spared[id] = nil end
  end
  local runs = #ids > 0 and call('HMGET', q.runs, unpack(ids)) or {}
  local recs = #ids > 0 and call('HMGET', q.jobs, unpack(ids)) or {}
  for i, id in ipairs(ids) do
    if runs[i] and sub(runs[i], 1, 16) == token and not spared[id] then
      late[#late + 1] = { id = id, run = parse_run(runs[i]), job = parse(recs[i]), until_ms = until_ms,
        worker = call('HGET', q.batches, 'w' .. token) or '' }
      spared[id] = true
    end
  end
  call('ZREM', q.leases, member)
end
table.sort(late, function(a, b)
  if a.until_ms ~= b.until_ms then return a.until_ms < b.until_ms end
  local x, y = a.job or { time = 0, seq = 0 }, b.job or { time = 0, seq = 0 }
  if x.time ~= y.time then return x.time < y.time end
  return x.seq < y.seq
end)

for _, l in ipairs(late) do
  local id, run, j = l.id, l.run, l.job
  if call('HEXISTS', q.runs, id) == 1 then
    drop_run(q, id, run)
    local state = 'queued'
    if not j or run.cancel > 0 then
      state = j and 'cancelled' or 'failed'
      note('stalled', q, id, j and j.attempts + 1 or 0, l.worker)
      finish(q, id, { state = state, token = '', worker = l.worker, ttl = j and run.ttl or 604800000, value = '',
        counted = COUNT_ATTEMPT + COUNT_STALL, group = run.group, successor = run.successor,
        attempt = j and j.attempts + 1 or 0 })
    else
      j.attempts, j.stalls, j.due, j.settled = j.attempts + 1, j.stalls + 1, now, ''
      give_back(q, id, j, 'stalled', l.worker)
      state = waiting_state(j)
    end
    gives[#gives + 1] = id
    gives[#gives + 1] = state
    gives[#gives + 1] = l.worker
  end
end
return gives
