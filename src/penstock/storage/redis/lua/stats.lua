-- stats: counts, totals and latencies of a queue at this moment, and its pause
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases completed failed cancelled limits gates closed recheck idle_gates meta waits wake stats history error_index error_order errors gone attempts log stream generations notices suspended successors
-- args:
-- gives: {1 when more jobs have fallen due than one call promotes, sample (see _ring.lua), pause or false, expired leases, damaged records}
-- include: shared expiry stats
local q = queue_at(ARGV[2], ARGV[3])
if unpark(q) or promote(q) or expire(q) then return { 1 } end
local known = call('HMGET', q.meta, 'paused', 'damaged')
local since, ends, by = read_pause(known[1])
return { 0, ring.build(now, stats.sample(q)), since and { since, ends, by } or false,
  call('ZCOUNT', q.leases, 0, now), to_number(known[2]) }
