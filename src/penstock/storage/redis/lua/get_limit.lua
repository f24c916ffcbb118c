-- get_limit: a limit, and the state of its gate
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled limits settings gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: 'queue', 'groups', 'group' or 'family', group or '', most
-- gives: {1} to ask again, or {0, rule or false, version and settings or false, running, waiting (of a group at most `most`),
--         when it opens or 0, pause or false, closed groups}; those of a family have no running and waiting, those of every
--         group open when the first closed one does, and a pause is {since, end, by whom}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local kind, group, most = ARGV[4], ARGV[5], tonumber(ARGV[6])

if kind == 'family' then
  local key = family_start(q.prefix) .. 'limit'
  local found, G = call('HMGET', key, 'rule', 'settings', 'gate'), gates()
  local rule = G.read_rule(found[1])
  local opens = rule and G.rate_opens(G.read_gate(found[3]), rule, 1) or 0
  return { 0, rule and found[1] or false, found[2], 0, 0, opens > now and opens or 0, false, 0 }
end

if unpark(q) or promote(q) or expire(q) then return { 1 } end
local G, field = gates(), kind == 'queue' and '' or 'g' .. group
local packed, settings = call('HGET', q.limits, field), call('HGET', q.settings, field)
if not G.read_rule(packed) then packed = false end

if kind == 'groups' then
  local closed = call('ZCARD', q.closed) + call('ZCARD', q.recheck)
  if limited_by(q) == 0 then -- held groups are noted there only since a limit or a pause that is over
    local noted = {}
    for _, key in ipairs(closed > 0 and { q.closed, q.recheck } or {}) do
      for _, member in ipairs(call('ZRANGE', key, 0, -1)) do noted[sub(member, 7)] = true end
    end
    for _, held in ipairs(call('HKEYS', q.holds)) do
      if held ~= '' and not noted[held] and lane_head(q, held, '1')[1] then closed = closed + 1 end
    end
  end
  local first = call('ZRANGE', q.closed, 0, 0)[1]
  local opens = first and #first > 6 and unpack_head('>I6', first) or FOREVER
  return { 0, packed, settings, 0, 0, opens < FOREVER and opens or 0, false, closed }
end

-- When a rate or a pause lets the next job start, 0 for now or never.
local function opening(rule, g, cost, full, since, ends)
  if full or since and ends == FOREVER then return 0 end
  local at = math.max(G.rate_opens(g, rule, cost), since and ends or 0)
  return at > now and at or 0
end

if kind == 'group' then
  local rule, g, prefix = G.rule_of(q, group), G.gate_of(q, group), lane_prefix(group)
  local running, held = G.runs_of_group(q, group)
  local waiting = math.min(call('ZLEXCOUNT', q.lanes, '[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1'), most)
  local head = lane_head(q, group, '1')[1]
  local full = rule.ordered and held > 0 or not rule.ordered and running >= math.max(rule.concurrency, 1)
  local since = g.since and g.ends > now and g.since
  local opens = opening(rule, g, head and G.cost_at(q, group, head) or 1, full, since, g.ends)
  return { 0, packed, settings, running, waiting, opens, since and { since, g.ends, g.by } or false, 0 }
end

local rule = G.read_rule(packed) or { concurrency = 0, step = 0 }
local running = call('HLEN', q.runs)
local waiting = call('ZCARD', q.ready) + call('ZCARD', q.parked) - call('HLEN', q.turns) + call('ZCARD', q.lanes)
local since, ends, by = read_pause(call('HGET', q.meta, 'paused'))
local full = rule.concurrency > 0 and running >= rule.concurrency
local opens = opening(rule, G.gate_of(q, ''), 1, full, since, ends)
return { 0, packed, settings, running, waiting, opens, since and { since, ends, by } or false, 0 }
