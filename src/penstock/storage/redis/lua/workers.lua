-- workers: the workers that are alive
-- flags: no-writes
-- keys: workers
-- args:
-- gives: {id, record, ...}
-- include: shared
local gives, all = {}, call('HGETALL', ARGV[2])
for i = 1, #all, 2 do
  local until_ms = #all[i + 1] >= 12 and unpack_head('>I6', all[i + 1], 7)
  if until_ms and until_ms > now then
    gives[#gives + 1] = all[i]
    gives[#gives + 1] = all[i + 1]
  end
end
return gives
