-- log_activity: add an entry to the activity; the oldest go
-- flags: allow-oom
-- keys: activity
-- args: request, window (see _once.lua), entry, how many are kept, for how long (ms)
-- gives: 1
-- include: shared once
local activity = ARGV[2]
return once(function()
  local last = call('LINDEX', activity, 0)
  local number = last and #last >= 12 and unpack_head('>I6', last) or 0
  call('LPUSH', activity, pack('>I6I6', number + 1, now) .. ARGV[6])
  call('LTRIM', activity, 0, tonumber(ARGV[7]) - 1)
  call('PEXPIRE', activity, ARGV[8])
  return 1
end)
