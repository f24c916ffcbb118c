-- restore: nothing -> the state that the job had in another storage, its counts and times included
-- flags:
-- keys: jobs runs ends ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index error_order errors limits gates closed recheck idle_gates attempts log stream meta wake generations notices suspended
-- args: request, window (see _once.lua), jobs (msgpack: a list of {id, state, priority, due, created, attempts, retries,
--   stalls, timeouts, group or false, finished, expires (0: never), start-by time or false, cost, window or false}), then of each: bounds,
--   headers, error, payload, worker, value
-- gives: {1 when the queue is new, a list, which may end early (send the rest again), of 1 (restored) or 0 (its id is
--   taken)}
-- include: shared transitions once
local q = queue_at(ARGV[2], ARGV[3])
local BYTES = 6
local created = 0

-- Whether an id is taken; that of a finished job whose retention is over is not.
local function is_taken(id)
  if call('HEXISTS', q.jobs, id) == 0 then return false end
  local ended = spend(call('HGET', q.ends, id))
  local expires = ended and select(3, parse_end(ended)) or 0
  if expires == 0 or expires > now then return true end
  forget_end(q, id, ended)
  forget_histories(q, { id })
  forget_flow(q, id, parse(call('HGET', q.jobs, id)))
  return false
end

-- The time that orders a job: due jobs are ordered as they are restored, and one in backoff stays before later ones.
local function stamp(state, due, born, group, accepted)
  if state == 'retrying' then return math.min(born, accepted) end
  if state == 'queued' then return accepted end
  return group and math.max(due, accepted) or due
end

local function restore_one(e, at)
  local id, state, group = e[1], e[2], e[10] or nil
  if is_taken(id) then return 0 end
  local seq = next_seq(q)
  if seq == 1 then
    begin_queue(q.prefix, q.name)
    created = 1
  end
  local due = state == 'queued' and math.min(e[4], now) or e[4]
  local ended = STATES[state]
  local j = { priority = e[3], time = stamp(state, due, e[5], group, acceptance(q)), seq = seq, due = due, created = e[5],
    attempts = e[6], retries = e[7], stalls = e[8], timeouts = e[9], retried = state == 'retrying', solo = false,
    group = group, start_by = not ended and e[13] or nil, cost = e[14], window = e[15] or nil, earliest = 0,
    bounds = ARGV[at], headers = ARGV[at + 1], error = ended and '' or ARGV[at + 2], settled = '',
    payload = ARGV[at + 3] }
  if not ended or state == 'completed' then windows().take(q, id, j) end
  if not ended then
    store(q, id, j)
    emit('enqueued', q, id, 0)
    return 1
  end
  local number, worker = next_end(q), ARGV[at + 4]
  call('HSET', q.jobs, id, build(j))
  call('HSET', q.ends, id, pack(END, ended, e[11], e[12], number, 0, 0, #worker) .. worker .. ARGV[at + 5])
  call('ZADD', q[state], 0, end_member(e[12], number, id))
  if state ~= 'completed' then count_total(q, state) end
  if state == 'failed' then
    errors().add(q, id, number, ARGV[at + 5])
    errors().note(q, id, ARGV[at + 5])
  end
  return 1
end

return once(function()
  promote(q)
  local gives = {}
  for i, e in ipairs(cmsgpack.unpack(ARGV[6])) do
    gives[i] = restore_one(e, 7 + (i - 1) * BYTES)
    if budget <= 0 then break end
  end
  return { created, gives }
end)
