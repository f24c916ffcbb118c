-- history: the samples of one step, and the newest one
-- flags: no-writes
-- keys: history
-- args: m, t or h, the number of samples
-- gives: {until when the newest was found unchanged or false, newest sample or false, sample, ...}
-- include: queue
local q = queue_at(ARGV[2], ARGV[3])
local fields = { 'u', 'n' }
for i = 0, tonumber(ARGV[5]) - 1 do fields[#fields + 1] = ARGV[4] .. i end
local found, gives = call('HMGET', q.history, unpack(fields)), {}
for i, record in ipairs(found) do
  if record or i <= 2 then gives[#gives + 1] = record end
end
return gives
