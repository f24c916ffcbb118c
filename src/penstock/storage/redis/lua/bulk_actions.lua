-- bulk_actions: one bulk action, or all
-- flags: no-writes
-- keys: bulk
-- args: id ('': all), for how long they are kept (ms)
-- gives: a list of version and time of the last change (6 bytes each) and record
-- include: shared
local bulk, id, gives = ARGV[2], ARGV[4], {}
for _, record in ipairs(id == '' and call('HVALS', bulk) or { call('HGET', bulk, id) or nil }) do
  if #record >= 12 and select(2, unpack_head('>I6I6', record)) > now - tonumber(ARGV[5]) then gives[#gives + 1] = record end
end
return gives
