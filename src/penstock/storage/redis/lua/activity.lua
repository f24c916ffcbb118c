-- activity: entries of the activity, newest first
-- flags: no-writes
-- keys: activity
-- args: number before which they are ('': from the newest on), limit, for how long they are kept (ms)
-- gives: a list of {number and time (6 bytes each) and entry}
-- include: shared
local activity, before, limit = ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])
local newest, start = call('LINDEX', activity, 0), 0
if before and newest and #newest >= 12 then start = math.max((unpack_head('>I6', newest)) - before + 1, 0) end
local gives = {}
for _, entry in ipairs(call('LRANGE', activity, start, start + limit - 1)) do
  local at = #entry >= 12 and select(2, unpack_head('>I6I6', entry)) or now
  if at > now - tonumber(ARGV[6]) then gives[#gives + 1] = entry end
end
return gives
