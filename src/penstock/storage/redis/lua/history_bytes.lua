-- history_bytes: how much memory the samples of a queue take
-- flags: no-writes
-- keys: history
-- args:
-- gives: bytes
-- include: queue
local q = queue_at(ARGV[2], ARGV[3])
return call('MEMORY', 'USAGE', q.history) or 0
