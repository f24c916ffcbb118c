-- The ready order, the lanes of groups, and due jobs: the part that the fast paths of claim and settle need.

local function rank(priority, time, seq) return pack('>I4I6I6', 2147483647 - priority, time, seq) end

-- Sorts as the group's bytes do, and no group's prefix is the start of another's: NUL is escaped, NUL NUL ends it.
local function lane_prefix(group)
  if string.find(group, '\0', 1, true) then group = string.gsub(group, '%z', '\0\255') end
  return group .. '\0\0'
end

-- The position of the id in the members of a lane.
local function id_at(group)
  return (string.find(group, '\0', 1, true) and #lane_prefix(group) or #group + 2) + 13
end

-- The first members of a lane. (Numbers are passed as strings, because the server formats numbers slowly.)
local function lane_head(q, group, limit)
  if string.find(group, '\0', 1, true) then group = sub(lane_prefix(group), 1, -3) end
  return call('ZRANGEBYLEX', q.lanes, '[' .. group .. '\0\0', '(' .. group .. '\0\1', 'LIMIT', '0', limit)
end

-- A turn is a group's member of ready, or of parked (which is a byte longer). The head of its lane is appended to the
-- former, so that a claim need not look for it; every other change of a lane removes it again.
local function member_of(turn, group) return sub(turn, 1, 17 + #group) end
local function known_head(turn, group) return turn and #turn > 18 + #group and sub(turn, 18 + #group) or nil end

-- A new run of a job with a group.
local GROUP_RUN = pack('>BBI6', 0, 0, 1)
local function group_run(token, group) return token .. GROUP_RUN .. pack('>H', #group) .. group .. '\0' end

-- The group of a run ('' for none), or nil if its record is damaged.
local function group_of_run(run)
  if #run == 16 then return '' end
  if #run < 27 then return nil end
  local high, low = byte(run, 25, 26)
  local size = high * 256 + low
  return #run >= 27 + size and sub(run, 27, 26 + size) or nil
end

-- The same of a plain run of this token: no cancel was requested and no successor is behind it. Else nil.
local function group_of_plain_run(run, token)
  if string.find(run, token, 1, true) ~= 1 or string.find(run, GROUP_RUN, 17, true) ~= 17 then return nil end
  return group_of_run(run)
end

-- Take sequence numbers; gives the last of them. A damaged counter continues at the time in ms: that is above all numbers
-- in use, unless there were more than a thousand jobs per second since 1970.
local function take_seq(q, count)
  local last = add_to(q.meta, 'seq', count)
  if not last then
    damaged(q, 1)
    last = now + count
    call('HSET', q.meta, 'seq', last)
  end
  return last
end

-- The first member of a line in which each member has two numbers before the id; damaged ones are removed.
local function first_of(q, line)
  local first = call('ZRANGE', line, '0', '0')[1]
  while first and #first < 13 do
    call('ZREM', line, first)
    damaged(q, 1)
    first = call('ZRANGE', line, '0', '0')[1]
  end
  return first
end

-- Count the jobs that hold a group, and store the number, which was damaged.
local function recount_holds(q, group)
  local prefix = lane_prefix(group)
  local count = call('ZLEXCOUNT', q.backoffs, '[' .. prefix, '(' .. prefix .. '\255')
  each_run(q, function(_, run) if group_of_run(run) == group then count = count + 1 end end)
  damaged(q, 1)
  call('HSET', q.holds, group, count)
  return count
end

-- The time at which the next job falls due, or nil.
local function next_due(q)
  if call('EXISTS', q.scheduled, q.retrying) == 0 then return nil end
  local due
  for _, line in ipairs({ q.scheduled, q.retrying }) do
    local head = first_of(q, line)
    local at = head and unpack_head('>I6', head)
    if at and (not due or at < due) then due = at end
  end
  return due
end

-- Release the holds of runs that ended, given by their groups in the order of their ends. Groups with jobs and no other
-- hold join the rotation, in the order in which their last runs ended.
local function free_groups(q, ended)
  local groups, count = {}, {}
  for i = #ended, 1, -1 do
    local group = ended[i]
    if not count[group] then groups[#groups + 1] = group end
    count[group] = (count[group] or 0) + 1
  end
  local holds, free = call('HMGET', q.holds, unpack(groups)), {}
  for i = #groups, 1, -1 do
    local before = to_number(holds[i] or 0, false)
    local left = before and before - count[groups[i]] or recount_holds(q, groups[i])
    if left > 0 then
      call('HSET', q.holds, groups[i], left)
    else
      free[#free + 1] = groups[i]
    end
  end
  if #free == 0 then return end
  call('HDEL', q.holds, unpack(free))
  local seq, ready, turns = take_seq(q, #free) - #free, {}, {}
  for i, group in ipairs(free) do
    local head = lane_head(q, group, '1')[1]
    if head then
      local at, member = #ready, rank(0, now, seq + i) .. 'g' .. group
      ready[at + 1], ready[at + 2] = '0', member
      turns[at + 1], turns[at + 2] = group, member .. head
    end
  end
  if #ready == 0 then return end
  call('ZADD', q.ready, unpack(ready))
  call('HSET', q.turns, unpack(turns))
  wake(q)
end
