-- expire: waiting or blocked -> cancelled, if the first run of a job has not begun by its start-by time; for reads that
-- must not write
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args:
-- gives: 1 when there may be more
-- include: shared expiry
return expire(queue_at(ARGV[2], ARGV[3])) and 1 or 0
