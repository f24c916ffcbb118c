-- get_schedule: a schedule by its name
-- flags: no-writes
-- keys: schedules
-- args: name
-- gives: its record, or false
-- include: shared schedules
local q = queue_at(ARGV[2], ARGV[3])
local rec = call('HGET', q.schedules, ARGV[4])
return is_live(parse_schedule(rec)) and rec
