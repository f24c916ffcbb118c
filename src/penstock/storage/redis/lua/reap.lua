-- reap: running with its lease expired -> queued at its old position with stalls + 1, or cancelled if that was requested
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake generations notices suspended successors
-- args: limit
-- gives: {1 when there may be more, id, state, worker, attempt, ...}
-- include: shared transitions claims
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local gives, late, leases = { 0 }, {}, {}
local look_up, room = MAX_IDS, MAX_BYTES
promote(q)

-- The runs of a lease that are left. A claim has at most about MAX_BYTES of records, so those of a lease are read
-- together.
local function collect(member)
  local token = sub(member, 1, 16)
  local lease = { member = member, left = 0, until_ms = tonumber(call('ZSCORE', q.leases, member)) }
  leases[#leases + 1] = lease
  local ids, runs = runs_of(q, member)
  local apart = select(2, parts_of(q, member == token and token or '')) -- runs with a deadline of their own
  local worker = call('HGET', q.batches, 'w' .. token) or ''
  look_up = look_up - #runs - 1
  for i = 1, #runs do
    local id = ids[i]
    if runs[i] and not apart[id] then
      local rec, run = call('HGET', q.jobs, id), run_of(q, id, runs[i])
      run.token = token -- that of a damaged run may be another
      room = room - (rec and #rec or 0)
      lease.left = lease.left + 1
      late[#late + 1] = { id = id, run = run, job = parse(rec), lease = lease, worker = worker }
    end
  end
end

-- Collect first; then take the jobs back in the order in which their leases expired.
for _, member in ipairs(call('ZRANGEBYSCORE', q.leases, 0, now, 'LIMIT', 0, limit)) do
  if #late >= limit or look_up <= 0 or room <= 0 then
    gives[1] = 1
    break
  end
  collect(member)
end
table.sort(late, function(a, b)
  if a.lease.until_ms ~= b.lease.until_ms then return a.lease.until_ms < b.lease.until_ms end
  local x, y = a.job or { time = 0, seq = 0 }, b.job or { time = 0, seq = 0 }
  if x.time ~= y.time then return x.time < y.time end
  return x.seq < y.seq
end)

for i = 1, math.min(limit, #late) do
  if budget <= 0 and i > 1 then
    gives[1] = 1
    break
  end
  local id, run, j, worker, state = late[i].id, late[i].run, late[i].job, late[i].worker, nil
  local attempt = j and j.attempts + 1 or 0
  late[i].lease.left = late[i].lease.left - 1
  if j then
    histories().add_attempt(q, id, run.token, attempt, run.cancel == 0 and 'stalled' or 'cancelled', worker, '')
  end
  drop_run(q, id, run)
  if j and run.cancel == 0 then
    j.attempts, j.stalls, j.due = attempt, j.stalls + 1, now
    j.solo = j.stalls > 1
    count_total(q, 'stalled')
    give_back(q, id, j, 'stalled', worker)
    state = waiting_state(q, id, j)
  else -- a cancel was requested, or its record was damaged while it ran
    state = j and 'cancelled' or 'failed'
    count_total(q, 'stalled')
    emit('stalled', q, id, attempt, sub(worker, 7))
    finish(q, id, { state = state, token = '', worker = worker, ttl = j and run.ttl or FAILED_MS, value = '',
      counted = COUNT_ATTEMPT + COUNT_STALL, group = run.group, successor = run.successor, attempt = attempt,
      job = j })
  end
  if effects then notices().apply(q) end
  gives[#gives + 1] = id
  gives[#gives + 1] = state
  gives[#gives + 1] = sub(worker, 7)
  gives[#gives + 1] = tostring(attempt)
end
for _, lease in ipairs(leases) do
  if lease.left == 0 then call('ZREM', q.leases, lease.member) end
end
if rawget(q, 'freed') then gates().freed(q) end
return gives
