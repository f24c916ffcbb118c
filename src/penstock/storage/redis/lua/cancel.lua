-- cancel: waiting or blocked -> cancelled; a running job is treated as the mode demands
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs batches completed failed cancelled gone meta waits wake
-- args: mode ttl (-1: for ever) ids...
-- gives: {status, 1 when a run goes on, ...}
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])
local mode, ttl = CANCEL[ARGV[4]], tonumber(ARGV[5])
local kept = ttl >= 0 and ttl or nil

local function cancel_run(id, held)
  local run = parse_run(held)
  local worker = call('HGET', q.batches, 'w' .. run.token) or ''
  local successor = run.successor and call('HGET', q.blocked, id)
  if mode > 0 then
    run.cancel, run.ttl = math.max(mode, run.cancel), kept
    if mode > 1 then
      local j = parse(call('HGET', q.jobs, id))
      emit('cancel_requested', q, id, j and j.attempts + 1 or 0, worker)
      call('PUBLISH', string.match(q.prefix, '^[^:]*') .. ':cancel:' .. worker, '')
    end
  end
  run.successor = false
  call('HSET', q.runs, id, build_run(run))
  if successor then
    call('HDEL', q.blocked, id)
    emit('cancelled', q, id, 0)
    return 'cancelled', 1
  end
  return mode > 1 and 'cancel_requested' or 'running', 1
end

local function cancel_one(id)
  local rec = call('HGET', q.jobs, id)
  if not rec then return 'not_found', 0 end
  local ended = call('HGET', q.ends, id)
  if ended then
    local state, _, expires = parse_end(ended)
    if expires ~= 0 and expires <= now then return 'not_found', 0 end
    return state or 'failed', 0
  end
  local held = call('HGET', q.runs, id)
  if held then return cancel_run(id, held) end
  local j = parse(rec)
  if not j then return 'not_found', 0 end
  leave(q, id, j)
  finish(q, id, { state = 'cancelled', token = '', ttl = kept, value = '', counted = 0, group = j.group,
    successor = false, attempt = j.attempts })
  return 'cancelled', 0
end

promote(q)
local gives = {}
for i = 6, #ARGV do
  local status, running = cancel_one(ARGV[i])
  gives[#gives + 1] = status
  gives[#gives + 1] = running
end
return gives
