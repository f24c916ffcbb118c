-- reap: running with its lease expired -> queued at its old position with stalls + 1, or cancelled if that was requested
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches completed failed cancelled gone meta waits wake
-- args: limit
-- gives: {id, state, worker, attempt, ...}
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local gives, late, leases = {}, {}, {}
promote(q)

-- Collect first; then take the jobs back in the order in which their leases expired.
for _, member in ipairs(call('ZRANGEBYSCORE', q.leases, '-inf', now, 'LIMIT', 0, limit)) do
  if #late >= limit then break end
  local token = sub(member, 1, 16)
  local lease = { member = member, left = 0, until_ms = tonumber(call('ZSCORE', q.leases, member)) }
  leases[#leases + 1] = lease
  local ids = cmsgpack.unpack(call('HGET', q.batches, 'b' .. member) or cmsgpack.pack({}))
  local _, apart = parts_of(q, member == token and token or '') -- runs with a deadline of their own
  local runs = #ids > 0 and call('HMGET', q.runs, unpack(ids)) or {}
  local recs = #ids > 0 and call('HMGET', q.jobs, unpack(ids)) or {}
  local worker = call('HGET', q.batches, 'w' .. token) or ''
  for i, id in ipairs(ids) do
    if runs[i] and sub(runs[i], 1, 16) == token and not apart[id] then
      lease.left = lease.left + 1
      late[#late + 1] = { id = id, run = parse_run(runs[i]), job = parse(recs[i]), lease = lease, worker = worker }
    end
  end
end
table.sort(late, function(a, b)
  if a.lease.until_ms ~= b.lease.until_ms then return a.lease.until_ms < b.lease.until_ms end
  local x, y = a.job or { time = 0, seq = 0 }, b.job or { time = 0, seq = 0 }
  if x.time ~= y.time then return x.time < y.time end
  return x.seq < y.seq
end)

for i = 1, math.min(limit, #late) do
  local id, run, j, worker, state = late[i].id, late[i].run, late[i].job, late[i].worker, nil
  local attempt = j and j.attempts + 1 or 0
  late[i].lease.left = late[i].lease.left - 1
  drop_run(q, id, run)
  if j and run.cancel == 0 then
    j.attempts, j.stalls, j.due = attempt, j.stalls + 1, now
    j.solo = j.stalls > 1
    give_back(q, id, j, 'stalled', worker)
    state = waiting_state(q, id, j)
  else -- a cancel was requested, or its record was damaged while it ran
    state = j and 'cancelled' or 'failed'
    emit('stalled', q, id, attempt, worker)
    finish(q, id, { state = state, token = '', worker = worker, ttl = j and run.ttl or FAILED_MS, value = '',
      counted = COUNT_ATTEMPT + COUNT_STALL, group = run.group, successor = run.successor, attempt = attempt })
  end
  gives[#gives + 1] = id
  gives[#gives + 1] = state
  gives[#gives + 1] = worker
  gives[#gives + 1] = tostring(attempt)
end
for _, lease in ipairs(leases) do
  if lease.left == 0 then call('ZREM', q.leases, lease.member) end
end
return gives
