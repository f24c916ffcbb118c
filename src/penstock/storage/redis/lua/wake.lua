-- wake: wake an idle worker if a queue has a job that may start, now or later
-- flags: allow-oom
-- keys: ready scheduled retrying parked closed recheck wake
-- args:
-- gives: 1
-- include: queue
local q = queue_at(ARGV[2], ARGV[3])
if call('EXISTS', q.ready, q.scheduled, q.retrying, q.parked, q.closed, q.recheck) > 0 then wake(q) end
return 1
