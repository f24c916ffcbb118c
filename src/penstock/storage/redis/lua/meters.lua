-- meters: the number of jobs that finished since the queue was created, of expired leases, and of damaged records
-- flags: no-writes
-- keys: leases meta
-- args:
-- gives: {finished, expired leases, damaged records}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local counted = call('HMGET', q.meta, 'finished', 'damaged')
return { to_number(counted[1]), call('ZCOUNT', q.leases, '-inf', now), to_number(counted[2]) }
