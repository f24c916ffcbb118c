-- purge: finished with its TTL over -> gone; a queue that holds nothing more leaves no key behind
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches completed failed cancelled gone meta waits wake
-- args: limit
-- gives: the number of records, remembered settlements included
-- include: shared expiry repair
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local count = 0

-- The ids of jobs whose end records fit these members. Others are damaged: then only the member goes, because
-- its id may be that of a job that has not ended. A job with a damaged end record goes by its member.
local function over_in(members)
  local ids, over = {}, {}
  for i, member in ipairs(members) do ids[i] = sub(member, 13) end
  for i, ended in ipairs(call('HMGET', q.ends, unpack(ids))) do
    local _, expires, number, bad
    if ended then _, _, expires, number, _, _, _, bad = parse_end(ended) end
    local fits = ended and (bad or end_member(expires, number, ids[i]) == members[i])
    if fits then over[#over + 1] = ids[i] end
    if bad or not fits then damaged(q, 1) end
  end
  return over
end

repair(q)
expire(q)
for _, state in ipairs(STATE_NAMES) do
  local over = limit > count
      and call('ZRANGEBYLEX', q[state], '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, limit - count) or {}
  if #over > 0 then
    local ids = over_in(over)
    call('ZREM', q[state], unpack(over))
    if #ids > 0 then
      call('HDEL', q.ends, unpack(ids))
      call('HDEL', q.jobs, unpack(ids))
    end
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
