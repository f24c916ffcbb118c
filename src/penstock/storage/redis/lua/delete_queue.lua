-- delete_queue: every record of a queue -> gone, its limits and schedules only if asked for; running claims are lost
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled gone limits gates closed recheck idle_gates ruled settings schedules ticks attempts log stream meta waits wake error_index error_order errors stats history generations notices suspended successors
-- args: request, window (see _once.lua), 1 to delete its limits and schedules too
-- gives: the number of jobs deleted
-- include: shared transitions limits once
local q = queue_at(ARGV[2], ARGV[3])
return once(function()
  local count = call('HLEN', q.jobs) + call('HLEN', q.blocked)
  for _, state in ipairs(STATE_NAMES) do
    count = count - call('ZLEXCOUNT', q[state], '-', '(' .. pack('>I6', now + 1))
  end
  local alarm = call('HMGET', q.meta, 'tick', 'ticker')
  limited_by(q)
  for _, id in ipairs(call('HKEYS', q.waits)) do notify_waiters(q, id) end
  if call('EXISTS', q.generations, q.notices) > 0 then notices().delete_all(q) end
  call('UNLINK', q.jobs, q.runs, q.ends, q.blocked, q.ready, q.scheduled, q.retrying, q.lanes, q.turns, q.holds,
    q.parked, q.backoffs, q.expiring, q.windows, q.leases, q.batches, q.completed, q.failed, q.cancelled, q.gone,
    q.meta, q.waits, q.wake, q.gates, q.closed, q.recheck, q.idle_gates, q.ruled, q.error_index, q.error_order, q.errors,
    q.stats, q.history, q.attempts, q.log, q.stream, q.suspended, q.successors)
  if ARGV[6] == '1' then call('UNLINK', q.limits, q.settings, q.schedules, q.ticks) end
  if limited_by(q) > 0 then limits().forget(q) end
  if call('EXISTS', q.settings, q.schedules) == 0 then call('SREM', KEYS[2], q.name) end
  if call('EXISTS', q.schedules) == 1 then
    if alarm[1] then call('HSET', q.meta, 'tick', alarm[1]) end
    if alarm[2] then call('HSET', q.meta, 'ticker', alarm[2]) end
  end
  emit('queue_deleted', q, '', 0)
  return count
end)
