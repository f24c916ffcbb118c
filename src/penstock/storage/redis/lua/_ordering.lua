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

-- The group of a plain run of this token ('' for none): no cancel was requested and no successor is behind it. Else nil.
local function group_of_plain_run(run, token)
  if string.find(run, token, 1, true) ~= 1 or string.find(run, GROUP_RUN, 17, true) ~= 17 then return nil end
  local high, low = byte(run, 25, 26)
  local size = high * 256 + low
  return sub(run, 27, 26 + size)
end

-- The time at which the next job falls due, or nil.
local function next_due(q)
  if call('EXISTS', q.scheduled, q.retrying) == 0 then return nil end
  local due
  for _, line in ipairs({ q.scheduled, q.retrying }) do
    local head = call('ZRANGE', line, '0', '0')[1]
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
    local left = tonumber(holds[i] or 0) - count[groups[i]]
    if left > 0 then
      call('HSET', q.holds, groups[i], left)
    else
      free[#free + 1] = groups[i]
    end
  end
  if #free == 0 then return end
  call('HDEL', q.holds, unpack(free))
  local seq, ready, turns = call('HINCRBY', q.meta, 'seq', #free) - #free, {}, {}
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
