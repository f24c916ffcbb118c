-- meters: how many jobs of a queue have ended since it was made, and how many leases are over
-- keys: leases meta
-- args:
-- gives: {ended, leases over}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
return { tonumber(call('HGET', q.meta, 'finished') or 0), call('ZCOUNT', q.leases, '-inf', now) }
