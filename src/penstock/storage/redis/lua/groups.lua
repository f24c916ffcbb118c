-- groups: the groups in which jobs are queued or in backoff, by their turns or by name
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: prefix of the names or '', 't' to go on with the rotation or 'n' with names, member of ready or group to go on
--       after or '', limit, up to which number waiting jobs are counted
-- gives: {1 when more jobs have fallen due than one call promotes, 't' or 'n' when there may be more, after which turn or name,
--         {group, id of the head or false, its state, its due time, queued jobs, held by how many, 1 in the rotation,
--          pause or false}, ...}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local wanted, part, after, limit, most = ARGV[4], ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])
if unpark(q) or promote(q) or expire(q) then return { 1, false, '' } end

-- Turns that a call sorts, and names that it looks at.
local WALK = 1000

local function after_prefix(prefix) return '[' .. sub(prefix, 1, -2) .. '\1' end

-- The prefix and the first member of the first group from here on; a member without a prefix is damaged, and skipped.
local function first_group(line, from)
  for _ = 1, PROMOTE do
    local member = call('ZRANGEBYLEX', line, from, '+', 'LIMIT', 0, 1)[1]
    if not member then return nil end
    local _, last = string.find(member, '\0\0', 1, true)
    if last and #member > last + 12 then return sub(member, 1, last), member end
    from = '(' .. member
  end
end

-- The first member of a line within these bounds, or nil if it is damaged.
local function first_between(line, low, high, prefix)
  local member = call('ZRANGEBYLEX', line, low, high, 'LIMIT', 0, 1)[1]
  return member and #member > #prefix + 12 and member or nil
end

-- The row of a group with these first members of its lane and of its jobs in backoff, and whether it is in the rotation:
-- it has a turn, and its head can be run.
local function row_of(prefix, group, head, resting, has_turn)
  local held = to_number(call('HGET', q.holds, group))
  local waiting = math.min(call('ZLEXCOUNT', q.lanes, '[' .. prefix, (string.gsub(after_prefix(prefix), '^%[', '('))), most)
  local since, ends, by = read_group_pause(call('HGET', q.gates, group))
  local rec = head and spend(call('HGET', q.jobs, sub(head, #prefix + 13)))
  if head and has_turn == nil then has_turn = is_turn(call('HGET', q.turns, group) or '', group) end
  local rotates = head and has_turn and format_of(rec) <= FORMAT
  local row = { group, false, 'running', 0, waiting, held, rotates and 1 or 0, since and { since, ends, by } or false }
  if resting then
    row[2], row[3], row[4] = sub(resting, #prefix + 13), 'retrying', unpack_head('>I6', resting, #prefix + 1)
  elseif held == 0 and head then
    local j = parse(rec)
    row[2], row[3], row[4] = sub(head, #prefix + 13), 'queued', j and j.due or 0
  end
  return row, rotates
end

-- Numbers are compared, not bytes: the order of strings in Lua depends on the locale of the server.
local function is_before(a, b)
  local time, seq = unpack_head('>I6I6', a, 5)
  local other_time, other_seq = unpack_head('>I6I6', b, 5)
  if time ~= other_time then return time < other_time end
  return seq < other_seq
end

-- The next turns, and the one to go on after when there may be more. A few are read from `turns` and sorted; of many,
-- those among the next members of `ready` are taken, where jobs without a group may lie between them.
local function next_turns()
  local turns = {}
  if call('HLEN', q.turns) <= WALK then
    local all = call('HGETALL', q.turns)
    for i = 1, #all, 2 do
      local turn = is_turn(all[i + 1], all[i]) and member_of(all[i + 1], all[i])
      if turn and (after == '' or is_before(after, turn)) then turns[#turns + 1] = turn end
    end
    table.sort(turns, is_before)
    return turns
  end
  local first, behind = rank(0, 0, 0), rank(-1, 0, 0)
  local members = call('ZRANGEBYLEX', q.ready, after == '' and '[' .. first or '(' .. after, '(' .. behind, 'LIMIT', 0, WALK)
  for _, member in ipairs(members) do
    if byte(member, 17) == 103 then turns[#turns + 1] = member end
  end
  return turns, #members == WALK and members[WALK]
end

local gives = { 0, false, '' }
if part == 't' then
  local turns, goes_on = next_turns()
  for _, turn in ipairs(turns) do
    if #gives == limit + 3 or budget <= 0 then
      gives[2] = 't'
      return gives
    end
    local group = sub(turn, 18)
    local prefix = lane_prefix(group)
    local low, high = '[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1'
    local row, rotates = row_of(prefix, group, first_between(q.lanes, low, high, prefix),
      first_between(q.backoffs, low, high, prefix), true)
    if rotates then gives[#gives + 1] = row end
    gives[3] = turn
  end
  if goes_on then
    gives[2], gives[3] = 't', goes_on
    return gives
  end
  after, gives[3] = '', ''
end

-- Whether a comes before b by its bytes.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = byte(a, i), byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

local from = '-'
if after ~= '' then
  from = after_prefix(lane_prefix(after))
elseif wanted ~= '' then
  from = '[' .. sub(lane_prefix(wanted), 1, -3)
end
for _ = 1, WALK do
  local lane, head = first_group(q.lanes, from)
  local backoff, resting = first_group(q.backoffs, from)
  local prefix = lane
  if not prefix or backoff and is_less(backoff, prefix) then prefix = backoff end
  local group = prefix and string.gsub(sub(prefix, 1, -3), '%z\255', '\0')
  if not group or sub(group, 1, #wanted) ~= wanted then return gives end
  if #gives == limit + 3 or budget <= 0 then break end
  local row, rotates = row_of(prefix, group, lane == prefix and head, backoff == prefix and resting)
  if wanted ~= '' or not rotates then gives[#gives + 1] = row end
  from, gives[3] = after_prefix(prefix), group
end
gives[2] = 'n'
return gives
