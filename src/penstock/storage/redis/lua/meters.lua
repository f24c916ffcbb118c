-- meters: the number of jobs that finished since the queue was created, of expired leases, and of damaged records, and the
--         next tick of its schedules
-- flags: no-writes
-- keys: leases meta
-- args:
-- gives: {finished, expired leases, damaged records, next tick or false}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local counted = call('HMGET', q.meta, 'finished', 'damaged', 'tick')
return { to_number(counted[1]), call('ZCOUNT', q.leases, 0, now), to_number(counted[2]), counted[3] and to_number(counted[3], false) }
