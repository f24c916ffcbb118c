-- error_groups: the error groups of a queue, the one seen last first
-- flags: no-writes
-- keys: errors error_order error_index
-- args:
-- gives: {time (ms), {key, last (ms), group record, failed jobs}, ...}
-- include: queue
local q = queue_at(ARGV[2], ARGV[3])
local gives = { now }
local order = call('ZREVRANGE', q.error_order, 0, 999, 'WITHSCORES')
for i = 1, #order, 2 do
  local key = order[i]
  local record = call('HGET', q.errors, key)
  if record and #key == 16 then
    gives[#gives + 1] = { key, order[i + 1], record, call('ZLEXCOUNT', q.error_index, '[' .. key, '(' .. key .. '\255') }
  end
end
return gives
