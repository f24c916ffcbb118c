-- paused: the pause of a queue, or of one group of it
-- flags: no-writes
-- keys: gates meta
-- args: group or ''
-- gives: {since, end, by whom} or false
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local since, ends, by
if ARGV[4] == '' then
  since, ends, by = read_pause(call('HGET', q.meta, 'paused'))
else
  since, ends, by = read_group_pause(call('HGET', q.gates, ARGV[4]))
end
return since and { since, ends, by } or false
