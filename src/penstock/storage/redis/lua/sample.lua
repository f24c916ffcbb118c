-- sample: keep a sample of a queue, and give what has changed since the last one
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled limits gates closed recheck idle_gates meta waits wake stats history error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: request, window (see _once.lua), the number of queues above which no other queue gets samples of its own
-- gives: {1 when more jobs have fallen due than one call promotes, sample (see _ring.lua) whose totals and times are those
--         since the last call, or false if there is no such queue}
-- include: shared expiry stats once
local q = queue_at(ARGV[2], ARGV[3])
if call('EXISTS', q.meta) == 0 then return { 0, false } end
if unpark(q) or promote(q) or expire(q) then return { 1 } end
local body

-- The totals and times since the last call; none the first time, and all of them if they have begun anew.
local function since_last()
  local known = call('HGET', q.history, 's')
  local counted = { body[2], body[4], body[5], body[6], body[7] }
  local text = cmsgpack.pack(counted)
  if text ~= known then
    call('HSET', q.history, 's', text)
    call('PEXPIRE', q.history, ring.STATS_MS)
  end
  local before = known and ring.read_body('      ' .. cmsgpack.pack({ {}, ring.unpack(known)[1], -1,
    unpack(ring.unpack(known), 2) })) or body
  local since = { body[1], ring.add(body[2], before[2], -1), body[3], ring.add(body[4], before[4], -1),
    body[5] - before[5], ring.add(body[6], before[6], -1), body[7] - before[7] }
  for _, list in ipairs({ since[2], since[4], since[6], { since[5], since[7] } }) do
    for _, n in ipairs(list) do if n < 0 then return body end end
  end
  return since
end

return { 0, once(function()
  body = stats.sample(q)
  local since = since_last()
  if call('HEXISTS', q.history, 'n') == 1 or call('SCARD', KEYS[2]) <= tonumber(ARGV[6]) then ring.take(q.history, body) end
  return ring.build(now, since)
end) }
