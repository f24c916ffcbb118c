-- find: ids of one state after a cursor, in the order that FIND_ORDER in base.py describes
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds batches completed failed cancelled meta wake
-- args: state cursor (empty: from the start) limit
-- gives: {again, cursor or false, {now, {id, record, run or false, worker or false, end or false}, ...}}
local q = queue_at(ARGV[2], ARGV[3])
local state, cursor, limit = ARGV[4], ARGV[5], tonumber(ARGV[6])
if promote(q) then return { 1, false, { now } } end

local function page(key, from, first, until_member)
  local members = call('ZRANGEBYLEX', key, from, until_member or '+', 'LIMIT', 0, limit)
  local ids = {}
  for i, member in ipairs(members) do ids[i] = sub(member, first) end
  return members, ids
end

-- Jobs without a group lie in the ready order among the lanes' turns; then come the lanes.
local function queued()
  if sub(cursor, 1, 1) ~= 'L' then
    local members = call('ZRANGEBYLEX', q.ready, cursor == '' and '-' or '(' .. sub(cursor, 2), '+', 'LIMIT', 0, limit)
    local ids = {}
    for _, member in ipairs(members) do
      if byte(member, 17) == 106 then ids[#ids + 1] = sub(member, 18) end
    end
    if #members == limit then return 'R' .. members[#members], ids end
    return 'L', ids
  end
  local from = #cursor > 1 and '(' .. sub(cursor, 2) or '-'
  local members = call('ZRANGEBYLEX', q.lanes, from, '+', 'LIMIT', 0, limit)
  local ids = {}
  for i, member in ipairs(members) do ids[i] = sub(member, 15 + unpack_head('>H', member)) end
  return #members == limit and 'L' .. members[#members] or false, ids
end

-- What runs, and what is blocked behind it, is no more than the workers hold: sort it here.
local function held(key, blocked)
  local found, after = {}, tonumber(cursor) or 0
  for _, id in ipairs(call('HKEYS', key)) do
    local rec = blocked and sub(call('HGET', key, id), 2) or call('HGET', q.jobs, id)
    local j = parse(rec) or { seq = 0 }
    if j.seq > after then found[#found + 1] = { id = id, seq = j.seq } end
  end
  table.sort(found, function(a, b) return a.seq < b.seq end)
  local ids = {}
  for i = 1, math.min(limit, #found) do ids[i] = found[i].id end
  return #found > limit and tostring(found[limit].seq) or false, ids
end

local function line()
  local from = '(' .. cursor
  if cursor == '' then from = '[' .. pack('>I6', now + 1) end
  local members, ids = page(q[state], from, 13)
  return #members == limit and members[#members] or false, ids
end

local next_cursor, ids
if state == 'queued' then
  next_cursor, ids = queued()
elseif state == 'running' then
  next_cursor, ids = held(q.runs, false)
elseif state == 'blocked' then
  next_cursor, ids = held(q.blocked, true)
else
  next_cursor, ids = line()
end
local rows = { now }
for _, id in ipairs(ids) do
  if state == 'blocked' then
    rows[#rows + 1] = { id, sub(call('HGET', q.blocked, id), 2), false, false, false }
  else
    local rec = call('HGET', q.jobs, id)
    if rec then
      local run = call('HGET', q.runs, id)
      rows[#rows + 1] = { id, rec, run, run and call('HGET', q.batches, 'w' .. sub(run, 1, 16)), call('HGET', q.ends, id) }
    end
  end
end
return { 0, next_cursor, rows }
