-- claim: due -> running
-- keys: jobs runs ends ready scheduled retrying lanes turns holds parked backoffs leases batches failed meta waits wake
-- args: token worker lease limit batch
-- gives: {again, look_at or false, {id, ...}, {record, ...}, {batch number, ...} or false (each its own),
--         {corrupt id, ...}, {id without a record, ...}}
local q = queue_at(ARGV[2], ARGV[3])
local token, worker, lease, limit, size = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local known = call('HMGET', q.meta, 'paused', 'parked', 'alarm')
if known[1] then return { 0, false, {}, {}, {}, {}, {} } end
-- include: ordering

-- Others are woken if there is more; if nothing is left, nobody need come, but one worker, this or
-- another, is to look when the next job falls due. Gives when, if it is this one.
local function pass_on(more, due)
  if more then
    wake(q)
    return false
  end
  call('DEL', q.wake)
  local alarm = tonumber(known[3] or 0)
  if due and (alarm <= now or due < alarm) then
    call('HSET', q.meta, 'alarm', due)
    return due
  end
  return false
end

-- A hash of up to 512 short values is a list to the server, which it searches from the front, and a table for good
-- when it gets one that is longer than 64 bytes: many runs, or many groups that are held, get such a value.
local MANY, WIDE = 16, string.rep('\0', 65)

local function hold_runs(ids, runs)
  if #ids == 0 then return end
  if #ids > MANY then runs[2] = (#runs[2] == 16 and lane_run(token, '') or runs[2]) .. WIDE end
  call('HSET', q.runs, unpack(runs))
  call('ZADD', q.leases, now + lease, token)
  call('HSET', q.batches, 'b' .. token, cmsgpack.pack(ids), 'n' .. token, #ids, 'w' .. token, worker)
end

-- One job of each entry at the front of the order, if these can simply be taken, else nil: ids, records, runs, and
-- of the lanes among them the groups, these with how many jobs hold them, and the members.
local function plain_front()
  local ids, runs, groups, held, heads, places = {}, {}, {}, {}, {}, {}
  for i, member in ipairs(call('ZRANGE', q.ready, '0', limit - 1)) do
    ids[i] = sub(member, 18)
    if byte(member, 17) == 103 then -- 'g'
      groups[#groups + 1], places[#groups + 1] = ids[i], i
    else
      runs[2 * i - 1], runs[2 * i] = ids[i], token
    end
  end
  if #ids == 0 then return ids, ids end
  local turns = #groups > 0 and call('HMGET', q.turns, unpack(groups))
  for at, group in ipairs(groups) do
    local i, head = places[at], known_head(turns[at], group) or lane_head(q, group, '1')[1]
    if not head then return nil end
    local id = sub(head, id_at(group))
    ids[i], runs[2 * i - 1], runs[2 * i] = id, id, lane_run(token, group)
    heads[at], held[2 * at - 1], held[2 * at] = head, group, '1'
  end
  local recs = call('HMGET', q.jobs, unpack(ids))
  for _, rec in ipairs(recs) do
    local format = rec and #rec >= HEAD_SIZE and byte(rec, 1) or format_of(rec)
    if format == 0 or format > FORMAT then return nil end
  end
  return ids, recs, runs, groups, held, heads
end

if not ears and not known[2] and size == 1 and limit > 0 then
  local due, ids, recs, runs, groups, held, heads = next_due(q)
  if not due or due > now then ids, recs, runs, groups, held, heads = plain_front() end
  if ids then
    if #ids > 0 then
      hold_runs(ids, runs)
      call('ZREMRANGEBYRANK', q.ready, '0', #ids - 1)
      if #groups > 0 then
        call('ZREM', q.lanes, unpack(heads))
        call('HDEL', q.turns, unpack(groups))
        if #groups > MANY then held[#held + 1], held[#held + 2] = '', WIDE end
        call('HSET', q.holds, unpack(held))
      end
    end
    return { 0, pass_on(#ids == limit and call('ZCARD', q.ready) > 0, due), ids, recs, false, {}, {} }
  end
end

-- include: shared
if (known[2] and unpark(q)) or promote(q) then return { 1, false, {}, {}, {}, {}, {} } end

local ids, recs, numbers, runs, corrupt, skipped = {}, {}, {}, {}, {}, {}
local aside, parked = 0, 0 -- how many entries were used up without a run, and how many of these were parked
local batches, filled, solo_batch = 0, 0, true -- filled: jobs in the open batch without a group

local function take(id, rec, group)
  ids[#ids + 1], recs[#recs + 1], numbers[#numbers + 1] = id, rec, batches - 1
  runs[#runs + 1] = id
  runs[#runs + 1] = group and lane_run(token, group) or token
  if ears then note('started', q, id, (parse(rec) or { attempts = 0 }).attempts + 1, worker) end
end

-- The i-th entry of this round waits for somebody who knows its format, with its group if it has one.
local function park_entry(i, format, group)
  aside, parked = aside + 1, parked + 1
  park(q, format, call('ZRANGE', q.ready, i - 1, i - 1)[1], group)
end

-- A record that cannot be read ends as failed, its bytes kept; one that is missing is passed over.
local function set_aside(id, rec)
  aside = aside + 1
  if not rec then
    skipped[#skipped + 1] = id
    note('skipped', q, id, 0)
    return
  end
  corrupt[#corrupt + 1] = id
  local number = call('HINCRBY', q.meta, 'finished', 1)
  local expires = now + FAILED_MS
  call('HSET', q.ends, id, build_end('failed', expires, number, 0, '', '', ''))
  call('ZADD', q.failed, 0, end_member(expires, number, id))
  tell(q, id)
  note('invalid_data', q, id, 0)
  note('failed', q, id, 0)
end

local function is_solo(rec) return has(byte(rec, 2), SOLO) end

-- A job without a group joins the open batch or begins one; false when there is no room for it.
local function take_job(i, id, rec)
  if not readable(rec) then
    local format = newer(rec)
    if format then park_entry(i, format) else set_aside(id, rec) end
    return true
  end
  local solo = is_solo(rec)
  if not solo and not solo_batch and filled < size then
    filled = filled + 1
  else
    if batches == limit then return false end
    batches, filled, solo_batch = batches + 1, 1, solo
  end
  take(id, rec)
  return true
end

-- The head of a lane is a batch of its own, up to a job that must be alone or that is not known here; gives
-- how many were taken, and the format of the first if that is why there are none.
local function take_lane(head, found, left)
  local taken = 0
  for i, id in ipairs(head.ids) do
    local rec = found[head.at + i]
    local format = not readable(rec) and newer(rec)
    if format then
      if taken == 0 then return 0, format end
      break
    elseif not readable(rec) then
      set_aside(id, rec)
      left[#left + 1] = head.members[i]
    else
      if is_solo(rec) and taken > 0 then break end
      if taken == 0 then batches = batches + 1 end
      taken = taken + 1
      left[#left + 1] = head.members[i]
      take(id, rec, head.group)
      if is_solo(rec) then break end
    end
  end
  filled, solo_batch = 0, true
  return taken
end

-- What may be taken from the front of the order, as ids, and the heads of the lanes among it.
local function front()
  local entries, heads, wanted, lanes = {}, {}, {}, 0
  for i, member in ipairs(call('ZRANGE', q.ready, 0, math.min(limit * size, 1000) - 1)) do
    local name = sub(member, 18)
    if byte(member, 17) == 103 then -- 'g'
      if lanes == limit or #wanted > 3000 then break end
      lanes = lanes + 1
      local members, at = lane_head(q, name, size), id_at(name)
      local head = { group = name, members = members, ids = {}, at = #wanted }
      for k, lane_entry in ipairs(members) do
        head.ids[k] = sub(lane_entry, at)
        wanted[#wanted + 1] = head.ids[k]
      end
      heads[i] = head
    else
      wanted[#wanted + 1] = name
    end
    entries[i] = { name = name, at = #wanted }
  end
  return entries, heads, wanted
end

-- Take from the front until there is no room; everything that was used lies before everything that was not.
local function round()
  if limit == 0 then return 0 end
  local entries, heads, wanted = front()
  if #entries == 0 then return 0 end
  local found = #wanted > 0 and call('HMGET', q.jobs, unpack(wanted)) or {}
  local used, left, groups, held, empty = 0, {}, {}, {}, {}
  for i, entry in ipairs(entries) do
    local head = heads[i]
    if head then
      if batches == limit then break end
      local taken, format = take_lane(head, found, left)
      if format then
        park_entry(i, format, head.group)
      else
        groups[#groups + 1] = head.group
        if taken > 0 then
          held[#held + 1] = head.group
          held[#held + 1] = taken
        else
          empty[#empty + 1] = head.group
        end
      end
    elseif not take_job(i, entry.name, found[entry.at]) then
      break
    end
    used = used + 1
  end
  if used > 0 then call('ZREMRANGEBYRANK', q.ready, 0, used - 1) end
  if #left > 0 then call('ZREM', q.lanes, unpack(left)) end
  if #groups > 0 then call('HDEL', q.turns, unpack(groups)) end
  if #held > 0 then call('HSET', q.holds, unpack(held)) end
  for _, group in ipairs(empty) do regroup(q, group) end
  return used
end

-- Again while there is room, as what was set aside may have hidden more; bounded.
repeat
  local before = aside
  local used = round()
  local full = batches == limit and (aside == before or solo_batch or filled == size)
until used == 0 or full or aside > PROMOTE

hold_runs(ids, runs)
-- What was parked here may be known to the next one.
return { 0, pass_on(parked > 0 or call('ZCARD', q.ready) > 0, next_due(q)), ids, recs, numbers, corrupt, skipped }
