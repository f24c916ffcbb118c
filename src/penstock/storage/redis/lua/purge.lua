-- purge: finished with its TTL over -> gone; a queue that holds nothing more leaves no key behind
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches completed failed cancelled gone meta waits wake
-- args: limit
-- gives: the number of records, remembered settlements included
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local count = 0
expire(q)
for _, state in ipairs(STATE_NAMES) do
  local over = limit > count
      and call('ZRANGEBYLEX', q[state], '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, limit - count) or {}
  if #over > 0 then
    local ids = {}
    for i, member in ipairs(over) do ids[i] = sub(member, 13) end
    call('ZREM', q[state], unpack(over))
    call('HDEL', q.ends, unpack(ids))
    call('HDEL', q.jobs, unpack(ids))
    count = count + #over
  end
end
local memories = limit > count and call('ZRANGEBYSCORE', q.gone, '-inf', now, 'LIMIT', 0, limit - count) or {}
if #memories > 0 then
  call('ZREM', q.gone, unpack(memories))
  count = count + #memories
end
if call('EXISTS', q.jobs, q.blocked, q.gone) == 0 and call('HEXISTS', q.meta, 'paused') == 0 then
  call('DEL', q.meta, q.turns, q.holds, q.parked, q.backoffs, q.expiring, q.wake, q.waits, q.leases, q.batches)
  call('SREM', KEYS[2], q.name)
end
return count
