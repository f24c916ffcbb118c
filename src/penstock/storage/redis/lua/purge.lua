-- purge: finished with its TTL over -> gone; a queue that holds nothing more leaves no key behind
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates ruled settings schedules ticks attempts log stream meta waits wake history generations notices suspended successors
-- args: limit
-- gives: the number of records, remembered settlements and schedules included
-- include: shared expiry schedules repair limits errors stats
local q = queue_at(ARGV[2], ARGV[3])
local limit = tonumber(ARGV[4])
local count = 0

-- The ids of jobs whose end records fit these members. Others are damaged: then only the member goes, because
-- its id may be that of a job that has not ended. A job with a damaged end record goes by its member.
local function over_in(members)
  local ids, over = {}, {}
  for i, member in ipairs(members) do ids[i] = sub(member, 13) end
  for i, ended in ipairs(call('HMGET', q.ends, unpack(ids))) do
    local state, _, expires, number, value, bad
    if ended then state, _, expires, number, _, _, value, bad = parse_end(ended) end
    local fits = ended and (bad or end_member(expires, number, ids[i]) == members[i])
    if fits then over[#over + 1] = ids[i] end
    if fits and state == 'failed' then errors().drop(q, ids[i], number, value) end
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
      if call('EXISTS', q.generations, q.notices) > 0 then flows().forget(q, ids) end
      call('HDEL', q.ends, unpack(ids))
      call('HDEL', q.jobs, unpack(ids))
      forget_histories(q, ids)
    end
    count = count + #over
  end
end
local memories = limit > count and call('ZRANGEBYSCORE', q.gone, '-inf', now, 'LIMIT', 0, limit - count) or {}
if #memories > 0 then
  call('ZREM', q.gone, unpack(memories))
  count = count + #memories
end
local ended = limit > count and call('ZRANGEBYSCORE', q.windows, '-inf', now, 'LIMIT', 0, limit - count) or {}
if #ended > 0 then
  call('ZREM', q.windows, unpack(ended))
  count = count + #ended
end
-- An entry that does not fit the record of its schedule only goes. A record that cannot be read goes by its entry.
local function purge_schedules()
  local over = call('ZRANGEBYLEX', q.ticks, '[' .. LIST_EXPIRIES, '(' .. LIST_EXPIRIES .. pack('>I6', now + 1), 'LIMIT', 0,
    limit - count)
  for _, entry in ipairs(over) do
    local name = sub(entry, 8)
    local rec = call('HGET', q.schedules, name)
    local s = parse_schedule(rec)
    if s and s.expires and timed_entry(LIST_EXPIRIES, s.expires, name) == entry or rec and not s then
      call('ZREM', q.ticks, entry)
      forget_schedule(q, name, s or {})
      count = count + 1
    else
      repair_entry(q, entry, name, rec, s)
    end
  end
  reset_tick(q)
end
if call('EXISTS', q.schedules, q.ticks) > 0 then
  repair_schedules(q)
  if limit > count then purge_schedules() end
end
local known = call('HMGET', q.meta, 'paused', 'limited')
if known[1] and not read_pause(known[1]) then
  call('HDEL', q.meta, 'paused')
  known[1] = false
end
if known[2] then
  know_limits(q, known[2])
  limits().purge(q)
end
errors().purge(q)
if call('EXISTS', q.jobs, q.blocked, q.gone, q.windows, q.settings, q.gates, q.schedules) == 0 and not known[1] then
  if call('EXISTS', q.history) == 1 then -- its samples go on with these totals if it comes back
    local totals = ring.add(stats.totals(q), ring.read_totals(call('HGET', q.history, 'b')), 1)
    call('HSET', q.history, 'b', cmsgpack.pack(totals))
  end
  call('DEL', q.meta, q.turns, q.holds, q.parked, q.backoffs, q.expiring, q.wake, q.waits, q.leases, q.batches, q.closed,
    q.recheck, q.idle_gates, q.ruled, q.limits, q.ticks, q.error_index, q.attempts, q.log, q.stream, q.suspended, q.successors, q.generations, q.notices)
  call('SREM', KEYS[2], q.name)
end
return count
