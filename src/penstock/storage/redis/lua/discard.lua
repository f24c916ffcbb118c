-- discard: waiting, blocked or finished -> gone; a running job is refused
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake generations notices suspended successors
-- args: request, window (see _once.lua), state or '' for any, latest time of its end (or acceptance) or -1 for any, ids...
-- gives: a list, which may end early (send the rest again), of 'cancelled' (it was unfinished), 'discarded' (it was
--         finished), 'running', 'kept' (its state or age is another) or 'not_found'
-- include: shared transitions expiry once
local q = queue_at(ARGV[2], ARGV[3])
local wanted, before = ARGV[6], tonumber(ARGV[7])

local function fits(state, since)
  return (wanted == '' or wanted == state) and (before < 0 or since <= before)
end

local function discard_end(id, ended, rec)
  local state, finished, expires = parse_end(ended)
  if expires ~= 0 and expires <= now then return 'not_found' end
  if not fits(state, finished) then return 'kept' end
  forget_end(q, id, ended)
  local j = parse(rec)
  call('HDEL', q.jobs, id)
  forget_histories(q, { id })
  forget_flow(q, id, j)
  windows().free(q, id, j)
  return 'discarded'
end

local function discard_successor(id, held)
  local run = held and run_of(q, id, held)
  local j = (not run or run.successor) and parse(sub(call('HGET', q.blocked, id) or '', 2))
  if not j then return 'running' end
  if not fits('blocked', j.created) then return 'kept' end
  drop_successor(q, id, run)
  emit('cancelled', q, id, 0)
  return 'cancelled'
end

local function discard_one(id)
  local rec = spend(call('HGET', q.jobs, id))
  if not rec then return 'not_found' end
  local ended = spend(call('HGET', q.ends, id))
  if ended then return discard_end(id, ended, rec) end
  local held = call('HGET', q.runs, id)
  if held then return discard_successor(id, held) end
  local j = parse(rec)
  if not j then return 'not_found' end
  if j.flow and call('HEXISTS', q.blocked, id) == 1 then return discard_successor(id) end
  if not fits(waiting_state(q, id, j), j.created) then return 'kept' end
  leave(q, id, j)
  finish(q, id, { state = 'cancelled', token = '', ttl = 0, value = '', counted = 0, group = j.group,
    successor = false, attempt = j.attempts, job = j })
  return 'cancelled'
end

return once(function()
  promote(q)
  expire(q)
  local gives = {}
  for i = 8, #ARGV do
    gives[#gives + 1] = discard_one(ARGV[i])
    if effects then notices().apply(q) end
    if budget <= 0 then break end
  end
  return gives
end)
