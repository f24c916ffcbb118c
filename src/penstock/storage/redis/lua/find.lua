-- find: ids of one state after a cursor, in the order that FIND_ORDER in base.py describes
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring batches completed failed cancelled meta waits wake
-- args: state cursor (empty: from the start) limit
-- gives: {again, cursor to go on with or false, {now, {position, id, record, run or false, worker or false, end or false, state}, ...}}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local state, cursor, limit = ARGV[4], ARGV[5], tonumber(ARGV[6])
if unpark(q) or promote(q) or expire(q) then return { 1, false, { now } } end

local ids, positions = {}, {}
local function found(id, position)
  ids[#ids + 1] = id
  positions[#positions + 1] = position
end

-- Jobs without a group are in `ready`, among the turns of groups, and in `parked`, each after its format.
local function among_turns(part, line, at, following)
  local from = #cursor > 1 and '(' .. sub(cursor, 2) or '-'
  local members = call('ZRANGEBYLEX', line, from, '+', 'LIMIT', 0, limit)
  for _, member in ipairs(members) do
    if byte(member, at) == 106 then found(sub(member, at + 1), part .. member) end
  end
  return #members == limit and part .. members[#members] or following
end

-- First the ready order, then the lanes, then the parked jobs.
local function queued()
  local part = sub(cursor, 1, 1)
  if part == '' or part == 'R' then return among_turns('R', q.ready, 17, 'L') end
  if part == 'P' then return among_turns('P', q.parked, 18, false) end
  local from = #cursor > 1 and '(' .. sub(cursor, 2) or '-'
  local members = call('ZRANGEBYLEX', q.lanes, from, '+', 'LIMIT', 0, limit)
  for _, member in ipairs(members) do
    local _, prefix_end = string.find(member, '\0\0', 1, true)
    if prefix_end then found(sub(member, prefix_end + 13), 'L' .. member) end
  end
  return #members == limit and 'L' .. members[#members] or 'P'
end

-- Running and blocked jobs are no more than the workers hold, so they are sorted here.
local function held(key, blocked)
  local all, after = {}, tonumber(cursor) or 0
  for _, id in ipairs(call('HKEYS', key)) do
    local j = parse(blocked and sub(call('HGET', key, id), 2) or call('HGET', q.jobs, id)) or { seq = 0 }
    if j.seq > after then all[#all + 1] = { id = id, seq = j.seq } end
  end
  table.sort(all, function(a, b) return a.seq < b.seq end)
  for i = 1, math.min(limit, #all) do found(all[i].id, tostring(all[i].seq)) end
  return #all > limit and positions[limit] or false
end

local function line()
  local from = cursor == '' and '[' .. pack('>I6', now + 1) or '(' .. cursor
  local members = call('ZRANGEBYLEX', q[state], from, '+', 'LIMIT', 0, limit)
  for _, member in ipairs(members) do found(sub(member, 13), member) end
  return #members == limit and members[#members] or false
end

local following
if state == 'queued' then
  following = queued()
elseif state == 'running' then
  following = held(q.runs, false)
elseif state == 'blocked' then
  following = held(q.blocked, true)
else
  following = line()
end

local rows = { now }
for i, id in ipairs(ids) do
  local rec, run, ended
  if state == 'blocked' then
    rec = sub(call('HGET', q.blocked, id), 2)
  else
    rec, run, ended = call('HGET', q.jobs, id), call('HGET', q.runs, id), call('HGET', q.ends, id)
  end
  local worker = run and call('HGET', q.batches, 'w' .. sub(run, 1, 16))
  if rec then
    rows[#rows + 1] = { positions[i], id, rec, run or false, worker or false, ended or false, state }
  end
end
return { 0, following, rows }
