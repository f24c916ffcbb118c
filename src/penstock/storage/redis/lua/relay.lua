-- relay: apply messages of the outboxes of families, the oldest first, and end open flows whose producers are silent
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates meta attempts log stream generations notices suspended successors waits wake
-- args: how many effects at most, 1 for open flows too, start of the channels of workers, start of the keys of each family...
-- gives: {how many were applied, 1 when there are more, 1 when this call has reached its bound}
-- include: shared transitions expiry cancelling reviving cascades
local q = queue_at(ARGV[2], ARGV[3])
return relay_all(q, tonumber(ARGV[4]), ARGV[5] == '1', ARGV[6], { unpack(ARGV, 7) })
