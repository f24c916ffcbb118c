-- workers: the workers that are alive
-- flags: no-writes
-- keys: workers
-- args:
-- gives: {id, record, ...}
-- include: shared
local gives, all = {}, call('HGETALL', ARGV[2])
for i = 1, #all, 2 do
  local _, until_ms = unpack_head('>I6I6', all[i + 1])
  if until_ms > now then
    gives[#gives + 1] = all[i]
    gives[#gives + 1] = all[i + 1]
  end
end
return gives
