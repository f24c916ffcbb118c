-- peek: the id of the job that a claim would give next
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args:
-- gives: {again, id or false}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local known = call('HMGET', q.meta, 'paused', 'limited')
know_limits(q, known[2])
if read_pause(known[1]) then return { 0, false } end
if unpark(q) or promote(q) or expire(q) then return { 1, false } end

-- The id of the first job whose gates are open, or false; nothing is changed.
local function first_open()
  local G = gates()
  local family, own = G.family_limit(q), G.rules_of(q).queue
  if family and family.rule.concurrency > 0 and family.running >= family.rule.concurrency then return false end
  if own and own.concurrency > 0 and call('HLEN', q.runs) >= own.concurrency then return false end
  for _, member in ipairs(call('ZRANGE', q.ready, 0, PROMOTE - 1)) do
    local id, closed = sub(member, 18), false
    if byte(member, 17) == 103 then -- 'g'
      local group, head = id, lane_head(q, id, '1')[1]
      closed = not head or G.opens_at(q, group, G.gate_of(q, group), G.rule_of(q, group), head) > now
      id = head and sub(head, id_at(group))
    end
    local rec = not closed and call('HGET', q.jobs, id)
    if not closed and not newer(rec) then
      local cost = format_of(rec) > 0 and cost_of(rec) or 1
      if family and G.rate_opens(family.gate, family.rule, cost) > now then return false end
      if own and G.rate_opens(G.gate_of(q, ''), own, cost) > now then return false end
      return id
    end
  end
  return false
end
if limited_by(q) > 0 then return { 0, first_open() } end

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
