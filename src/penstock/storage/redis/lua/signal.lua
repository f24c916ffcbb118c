-- signal: a value for an unfinished job: suspended -> queued if it waits for it, else it is kept
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates meta attempts log stream generations notices suspended successors waits wake
-- args: request, window (see _once.lua), id, name, value
-- gives: 'delivered', 'kept', 'full', 'finished' or 'not_found'
-- include: shared expiry once
local q = queue_at(ARGV[2], ARGV[3])
local id, name, value = ARGV[6], ARGV[7], ARGV[8]

local function waits_for(g)
  for _, each in ipairs(g.suspended and g.wait and g.wait[2] or {}) do
    if each == name then return true end
  end
  return false
end

local function send()
  promote(q)
  expire(q)
  local j = parse(spend(call('HGET', q.jobs, id)))
  if not j then return 'not_found' end
  local ended = call('HGET', q.ends, id)
  local expires = ended and select(3, parse_end(ended)) or 0
  if ended then return expires ~= 0 and expires <= now and 'not_found' or 'finished' end
  local F, run = flows(), call('HGET', q.runs, id)
  local g = F.ensure(q, id, j, run and run_of(q, id, run))
  if waits_for(g) then
    emit('signalled', q, id, j.attempts)
    F.write(q, j, g, g.wait[1], KIND_SIGNAL, name .. '\0' .. value)
    F.resume(q, id, j, g)
    return 'delivered'
  end
  if F.unread(q, g) >= MAX_SIGNALS then return 'full' end
  emit('signalled', q, id, j.attempts + (run and 1 or 0))
  F.keep_signal(q, j, g, name, value)
  F.save(q, id, g)
  return 'kept'
end
return once(send)
