-- set_paused: pause or resume the claims of a queue
-- flags: allow-oom
-- keys: ready scheduled retrying parked meta wake
-- args: request, window (see _once.lua), paused (1 or 0)
-- gives: 1 when that changed anything
-- include: shared once
local q = queue_at(ARGV[2], ARGV[3])
return once(function()
  if ARGV[6] == '1' then
    call('SADD', KEYS[2], q.name)
    return call('HSETNX', q.meta, 'paused', now)
  end
  local changed = call('HDEL', q.meta, 'paused')
  if changed == 1 and (call('EXISTS', q.ready, q.scheduled, q.retrying, q.parked) > 0) then wake(q) end
  return changed
end)
