-- delete_queue: every record of a queue -> gone; running claims are lost
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches completed failed cancelled gone meta waits wake
-- args: request, window (see _once.lua)
-- gives: the number of jobs deleted
-- include: shared once
local q = queue_at(ARGV[2], ARGV[3])
return once(function()
  local count = call('HLEN', q.jobs) + call('HLEN', q.blocked)
  for _, state in ipairs(STATE_NAMES) do
    count = count - call('ZLEXCOUNT', q[state], '-', '(' .. pack('>I6', now + 1))
  end
  for _, id in ipairs(call('HKEYS', q.waits)) do notify_waiters(q, id) end
  call('UNLINK', q.jobs, q.runs, q.ends, q.blocked, q.ready, q.scheduled, q.retrying, q.lanes, q.turns, q.holds,
    q.parked, q.backoffs, q.expiring, q.leases, q.batches, q.completed, q.failed, q.cancelled, q.gone, q.meta, q.waits,
    q.wake)
  call('SREM', KEYS[2], q.name)
  emit('queue_deleted', q, '', 0)
  return count
end)
