-- meters: the number of jobs that finished since the queue was created, and of expired leases
-- flags: no-writes
-- keys: leases meta
-- args:
-- gives: {finished, expired leases}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
return { tonumber(call('HGET', q.meta, 'finished') or 0), call('ZCOUNT', q.leases, 0, now) }
