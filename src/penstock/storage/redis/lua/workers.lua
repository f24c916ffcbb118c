-- workers: the workers that are alive; expired records are deleted
-- keys: workers
-- args:
-- gives: {id, record, ...}
-- include: shared
local workers = ARGV[2]
local gives, over, all = {}, {}, call('HGETALL', workers)
for i = 1, #all, 2 do
  local _, until_ms = unpack_head('>I6I6', all[i + 1])
  if until_ms > now then
    gives[#gives + 1] = all[i]
    gives[#gives + 1] = all[i + 1]
  else
    over[#over + 1] = all[i]
  end
end
if #over > 0 then call('HDEL', workers, unpack(over, 1, math.min(#over, 1000))) end
return gives
