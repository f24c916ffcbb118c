-- cancel: waiting or blocked -> cancelled; a running job is treated as the mode demands
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring batches completed failed cancelled gone meta waits wake
-- args: request, window (see _once.lua), mode, ttl (-1: for ever), start of the channels of workers, ids...
-- gives: a number for each id, or for the first ones (send the rest again): its status, + 8 when a run goes on, + 16 when it was so already
-- include: shared transitions expiry once
local q = queue_at(ARGV[2], ARGV[3])
local mode, ttl = CANCEL[ARGV[6]], tonumber(ARGV[7])
local kept = ttl >= 0 and ttl or nil
local NOT_FOUND, COMPLETED, FAILED, CANCELLED, RUNNING, REQUESTED = 0, 1, 2, 3, 4, 5 -- those of ends as in STATES
local GOES_ON, ALREADY = 8, 16

local function cancel_run(id, held)
  local run = run_of(q, id, held)
  local worker = call('HGET', q.batches, 'w' .. run.token) or ''
  local successor = run.successor and call('HGET', q.blocked, id)
  local already = run.cancel >= mode
  if mode > 0 then
    run.cancel, run.ttl = math.max(mode, run.cancel), kept
    if mode > 1 then
      local j = parse(call('HGET', q.jobs, id))
      if not already then emit('cancel_requested', q, id, j and j.attempts + 1 or 0, worker) end
      call('PUBLISH', ARGV[8] .. worker, '')
    end
  end
  if successor then
    drop_successor(q, id, run)
    emit('cancelled', q, id, 0)
    return CANCELLED + GOES_ON
  end
  run.successor = false
  call('HSET', q.runs, id, build_run(run))
  if mode <= 1 then return RUNNING + GOES_ON end
  return REQUESTED + GOES_ON + (already and ALREADY or 0)
end

local function cancel_one(id)
  local rec = spend(call('HGET', q.jobs, id))
  if not rec then return NOT_FOUND end
  local ended = spend(call('HGET', q.ends, id))
  if ended then
    local state, _, expires = parse_end(ended)
    if expires ~= 0 and expires <= now then return NOT_FOUND end
    return state == 'cancelled' and CANCELLED + ALREADY or STATES[state] or FAILED
  end
  local held = call('HGET', q.runs, id)
  if held then return cancel_run(id, held) end
  local j = parse(rec)
  if not j then return NOT_FOUND end
  leave(q, id, j)
  finish(q, id, { state = 'cancelled', token = '', ttl = kept, value = '', counted = 0, group = j.group,
    successor = false, attempt = j.attempts })
  return CANCELLED
end

return once(function()
  promote(q)
  expire(q)
  local gives = {}
  for i = 9, #ARGV do
    gives[#gives + 1] = cancel_one(ARGV[i])
    if budget <= 0 then break end
  end
  return gives
end)
