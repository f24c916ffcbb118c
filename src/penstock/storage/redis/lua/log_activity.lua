-- log_activity: add an entry to the activity; the oldest go
-- flags: allow-oom
-- keys: activity
-- args: entry, how many are kept, for how long (ms)
-- gives: 1
-- include: shared
local activity = ARGV[2]
local last = call('LINDEX', activity, 0)
local number = last and #last >= 12 and unpack_head('>I6', last) or 0
call('LPUSH', activity, pack('>I6I6', number + 1, now) .. ARGV[4])
call('LTRIM', activity, 0, tonumber(ARGV[5]) - 1)
call('PEXPIRE', activity, ARGV[6])
return 1
