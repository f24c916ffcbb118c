-- peek: the id of the job that a claim would give next
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring completed failed cancelled meta waits wake
-- args:
-- gives: {again, id or false}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
if call('HEXISTS', q.meta, 'paused') == 1 then return { 0, false } end
if unpark(q) or promote(q) or expire(q) then return { 1, false } end
for _ = 1, PROMOTE do
  local first = call('ZRANGE', q.ready, 0, 0)[1]
  if not first then return { 0, false } end
  local id, group = sub(first, 18), nil
  if byte(first, 17) == 103 then -- 'g'
    group = id
    local head = lane_head(q, group, '1')[1]
    id = head and sub(head, id_at(group))
  end
  local format = id and newer(spend(call('HGET', q.jobs, id)))
  if not format then return { 0, id or false } end
  call('ZREM', q.ready, first)
  park(q, format, first, group)
  wake(q)
  if budget <= 0 then break end
end
return { 1, false }
