-- find: ids of one state after a cursor, in the order that FIND_ORDER in base.py describes
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: state cursor (empty: from the start) limit, 1 for the opposite order, bytes that the page may still have,
--       group whose queued jobs are wanted or ''
-- gives: {again, cursor to go on with or false (which may come before the limit is reached), {now, {position, id, record, run or false, worker or false, end or false, state}, ...}}
-- include: shared expiry claims newest_runs
local q = queue_at(ARGV[2], ARGV[3])
local state, cursor, limit, newest, group = ARGV[4], ARGV[5], tonumber(ARGV[6]), ARGV[7] == '1', ARGV[9]
if unpark(q) or promote(q) or expire(q) then return { 1, false, { now } } end

local ids, positions = {}, {}
local function found(id, position)
  ids[#ids + 1] = id
  positions[#positions + 1] = position
end

-- At most `count` members of a line after one of them ('' for the first), from `low` on.
local function members_after(line, member, low, count)
  local from = member ~= '' and '(' .. member or newest and '+' or low
  if newest then return call('ZREVRANGEBYLEX', line, from, low, 'LIMIT', 0, count) end
  return call('ZRANGEBYLEX', line, from, '+', 'LIMIT', 0, count)
end

-- Jobs without a group are in `ready`, among the turns of groups, and in `parked`, each after its format. Many turns
-- may stand before a job: after a first look for `limit` jobs, MAX_TURNS members are looked at.
local MAX_TURNS = 1000
local function among_turns(part, line, at, following)
  local last, looked = sub(cursor, 2), 0
  repeat
    local count = looked == 0 and limit or MAX_TURNS
    local members = members_after(line, last, '-', count)
    for _, member in ipairs(members) do
      last = member
      if byte(member, at) == 106 then found(sub(member, at + 1), part .. member) end
      if #ids == limit then return part .. last end
    end
    if #members < count then return following end
    looked = looked + count
  until looked > MAX_TURNS
  return part .. last
end

-- First the ready order, then the lanes, then the parked jobs.
local function queued_part()
  local part = sub(cursor, 1, 1)
  if part == 'R' then return among_turns('R', q.ready, 17, not newest and 'L') end
  if part == 'P' then return among_turns('P', q.parked, 18, newest and 'L') end
  local count = limit - #ids
  local members = members_after(q.lanes, sub(cursor, 2), '-', count)
  for _, member in ipairs(members) do
    local _, prefix_end = string.find(member, '\0\0', 1, true)
    if prefix_end then found(sub(member, prefix_end + 13), 'L' .. member) end
  end
  return #members == count and 'L' .. members[#members] or newest and 'R' or 'P'
end

-- The jobs of one group: a part of the lanes.
local function queued_of_group()
  local prefix = lane_prefix(group)
  local low, high, last = '[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1', sub(cursor, 2)
  local members
  if newest then
    members = call('ZREVRANGEBYLEX', q.lanes, last ~= '' and '(' .. last or high, low, 'LIMIT', 0, limit)
  else
    members = call('ZRANGEBYLEX', q.lanes, last ~= '' and '(' .. last or low, high, 'LIMIT', 0, limit)
  end
  for _, member in ipairs(members) do found(sub(member, #prefix + 13), 'L' .. member) end
  return #members == limit and 'L' .. members[#members]
end

-- A part that ends before the limit is followed by the next one.
local function queued()
  if group ~= '' then return queued_of_group() end
  if cursor == '' then cursor = newest and 'P' or 'R' end
  while true do
    local following = queued_part()
    if not following or #following > 1 or #ids == limit then return following end
    cursor = following
  end
end

local function walk(visit)
  if newest then return walk_runs_back(q, cursor, visit) end
  return walk_runs(q, cursor, visit)
end

local function running()
  return walk(function(id, _, position)
    found(id, position)
    return #ids < limit
  end) or false
end

-- Successors are found by the runs that they wait for.
local function blocked_by_runs()
  return walk(function(id, run, position)
    if #run > 16 and call('HEXISTS', q.blocked, id) == 1 then found(id, position) end
    return #ids < limit
  end) or false
end

-- Those of jobs that do not run have positions of their own.
local APART = 83 -- 'S'
local function blocked_apart()
  local last = byte(cursor, 1) == APART and call('ZRANK', q.successors, sub(cursor, 2))
  local range = newest and 'ZREVRANGE' or 'ZRANGE'
  local first = last and (newest and call('ZCARD', q.successors) - last or last + 1) or 0
  local members = call(range, q.successors, first, first + limit - #ids - 1)
  for _, id in ipairs(members) do found(id, 'S' .. id) end
  return #members > 0 and #ids == limit and 'S' .. members[#members] or false
end

local function blocked()
  if call('EXISTS', q.blocked) == 0 then return false end
  local apart = byte(cursor, 1) == APART
  if newest and (cursor == '' or apart) then
    local following = blocked_apart()
    if following then return following end
    cursor = ''
  elseif apart then
    return blocked_apart()
  end
  local following = blocked_by_runs()
  if following or newest or #ids == limit then return following or false end
  return blocked_apart()
end

local function line()
  local members = members_after(q[state], cursor, '[' .. pack('>I6', now + 1), limit)
  for _, member in ipairs(members) do found(sub(member, 13), member) end
  return #members == limit and members[#members] or false
end

local following
if state == 'queued' then
  following = queued()
elseif state == 'running' then
  following = running()
elseif state == 'blocked' then
  following = blocked()
else
  following = line()
end

local ENDED = { completed = true, failed = true, cancelled = true }
local rows, room = { now }, tonumber(ARGV[8])
for i, id in ipairs(ids) do
  if room <= 0 then -- the rest comes with the next page
    following = positions[i - 1]
    break
  end
  local rec, run, ended
  if state == 'blocked' then
    rec = sub(call('HGET', q.blocked, id), 2)
  else
    rec = call('HGET', q.jobs, id)
    if state == 'running' then
      run = call('HGET', q.runs, id)
    elseif ENDED[state] then
      ended = call('HGET', q.ends, id)
    end
  end
  local worker = run and call('HGET', q.batches, 'w' .. sub(run, 1, 16))
  if rec then
    room = room - #rec - (run and #run or 0) - (ended and #ended or 0)
    local part = has_part(rec) and flows().shown(q, state == 'blocked' and id .. BLOCKED_PART or id) or nil
    rows[#rows + 1] = { positions[i], id, rec, run or false, worker or false, ended or false, state, part }
  end
end
return { 0, following, rows }
