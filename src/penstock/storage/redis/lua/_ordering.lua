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

-- What limits a queue: a sum of OWN, FAMILY and SINGLE, 0 for nothing. A script that has read it sets it.
local function know_limits(q, limited) q.limited_by = limited and to_number(limited, OWN + FAMILY + SINGLE) or 0 end
local function limited_by(q)
  if rawget(q, 'limited_by') == nil then know_limits(q, call('HGET', q.meta, 'limited')) end
  return q.limited_by
end

-- The concurrency of a queue, 0 for any; nil if it has a rate too, or a rule that cannot be read.
local function plain_concurrency(q)
  local rule = call('HGET', q.limits, '')
  if not rule then return 0 end
  if #rule ~= 30 then return nil end
  local concurrency, step = unpack_head('>I4I8', rule)
  return step == 0 and concurrency or nil
end

-- The time at which the next job falls due, or the gate of the next group opens, or nil.
local function next_due(q)
  if call('EXISTS', q.scheduled, q.retrying, q.closed, q.suspended) == 0 then return nil end
  local due
  if limited_by(q) > 0 then
    local head = call('ZRANGE', q.closed, '0', '0')[1]
    local at = head and #head > 6 and unpack_head('>I6', head)
    if at and at < FOREVER then due = at end
  end
  for _, line in ipairs({ q.scheduled, q.retrying, q.suspended }) do
    local head = first_of(q, line)
    local at = head and unpack_head('>I6', head)
    if at and at < FOREVER and (not due or at < due) then due = at end
  end
  return due
end
