-- claim: due -> running
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: token worker lease limit batch
-- gives: {1 (again), 2 (the bound was reached) or 0, look_at or false, {id, ...}, {record, ...}, {batch number, ...} or false (each its own),
--         {corrupt id, ...}, {id without a record, ...}, 1 if the queue is limited, next tick of the schedules or false, and the time if there is one,
--         {{place among the ids, part in flows (see `F.claim`)}, ...} if there are some}
local q = queue_at(ARGV[2], ARGV[3])
local token, worker, lease, limit, size = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
local known = call('HMGET', q.meta, 'paused', 'parked', 'alarm', 'expiry', 'big', 'limited', 'tick')
local big = known[5] and to_number(known[5], MAX_BYTES) -- records may be long: their bytes are counted
local limited = known[6] and 1 or 0
-- include: ordering turns
know_limits(q, known[6])

-- A worker must look at this time. Gives it if this worker is the one.
local function set_alarm(due)
  local alarm = to_number(known[3])
  if due and (alarm <= now or due < alarm) then
    call('HSET', q.meta, 'alarm', due)
    return due
  end
  return false
end

if known[1] then
  local ends = to_number(string.match(known[1], '^%d+ (%d+) '), FOREVER)
  if ends > now then return { 0, ends < FOREVER and set_alarm(ends), {}, {}, {}, {}, {}, limited, known[7], known[7] and now } end
  call('HDEL', q.meta, 'paused')
end

-- If there is more work, wake another worker. If there is none, no worker need come, but one must look when the next job
-- falls due. Gives that time if this worker is the one.
local function pass_on(more, due)
  if more then
    wake(q)
    return false
  end
  call('DEL', q.wake)
  return set_alarm(due)
end

-- The server keeps a hash of up to 512 short values as a list, which it searches from the front, and turns it into a
-- table for good when a value is longer than 64 bytes. So where many runs start, or many groups are held, one value is
-- padded.
local MANY, WIDE = 16, string.rep('\0', 65)

local function start_runs(ids, runs)
  if #ids == 0 then return end
  if #ids > MANY then runs[2] = (#runs[2] == 16 and group_run(token, '') or runs[2]) .. WIDE end
  call('HSET', q.runs, unpack(runs))
  call('ZADD', q.leases, now + lease, token, now - LONG_AGO, '!' .. token)
  call('HSET', q.batches, 'b' .. token, cmsgpack.pack(ids), 'n' .. token, #ids, 'w' .. token, pack('>I6', now) .. worker)
end

-- include: fast_claim
local answer = claim_front()
if answer then return answer end

-- include: shared expiry
if (known[2] and unpark(q)) or promote(q) or (known[4] and expire(q, known[4])) then return { 1, false, {}, {}, {}, {}, {}, limited, known[7], known[7] and now } end

local ids, recs, numbers, runs, corrupt, skipped = {}, {}, {}, {}, {}, {}
local aside, parked = 0, 0 -- the number of entries used without a run, and of these those that were parked
local begun = false -- whether a job that could expire has begun
local batches, filled, solo_batch = 0, 0, true -- filled: the number of jobs in the open batch without a group
local room = MAX_BYTES
local FIXED = 600 -- the parts of a record that are not counted have fewer bytes

-- The bytes of a record that count: payload, headers, bounds and error.
local function size_of(rec)
  local flags = byte(rec, 2)
  if has(flags, SHORT) then return #rec - SHORT_SIZE end
  return #rec - HEAD_SIZE - unpack_head('>H', rec, 39) - (has(flags, COST) and 4 or 0) - (has(flags, EXPIRES) and 6 or 0)
    - (has(flags, WINDOW) and 12 or 0) - (has(flags, SETTLED) and 17 or 0)
end

local function bound_reached() return room <= 0 or #ids >= MAX_BATCH end

-- The run of a job with a part in flows; the answer gets the part, with its place among the jobs.
local parts = {}
local function take_part(id, group)
  local part, cancel = flows().claim(q, id)
  if part then
    parts[#parts + 1] = { #ids, part }
    if part[10] == 1 then room = room - flows().load(q, id).bytes end
  end
  local successor = call('HEXISTS', q.blocked, id) == 1
  if successor then call('ZREM', q.successors, id) end
  local ttl = cancel or 0
  return build_run({ token = token, cancel = cancel and CANCEL.signal or 0, successor = successor, limited = limited == 1, flow = true,
    ttl = ttl >= 0 and ttl or nil, group = group })
end

local function take(id, rec, group)
  if big then room = room - size_of(rec) end
  ids[#ids + 1], recs[#recs + 1], numbers[#numbers + 1] = id, rec, batches - 1
  runs[#runs + 1] = id
  if has(byte(rec, 2), FLOW) then
    runs[#runs + 1] = take_part(id, group)
  else
    runs[#runs + 1] = limited == 1 and limited_run(token, group or '') or group and group_run(token, group) or token
  end
  if has(byte(rec, 2), EXPIRES) then
    drop_expiry(q, id, parse(rec))
    begun = true
  end
  if listened then emit('started', q, id, attempts_of(rec) + 1, worker) end
end

-- Park the i-th entry of this round, and its group if it has one, for workers that know its format.
local function park_entry(i, format, group)
  aside, parked = aside + 1, parked + 1
  park(q, format, call('ZRANGE', q.ready, i - 1, i - 1)[1], group)
end

-- A job whose record cannot be read fails, and its bytes are kept; an entry without a record is skipped. An entry whose
-- job runs or has ended is dropped.
local function set_aside(id, rec)
  aside = aside + 1
  damaged(q, 1)
  if not rec then
    skipped[#skipped + 1] = id
    emit('skipped', q, id, 0)
    return
  end
  if is_placed(q, id) then return end
  corrupt[#corrupt + 1] = id
  local number = next_end(q)
  local expires = now + FAILED_MS
  count_total(q, 'failed')
  call('HSET', q.ends, id, build_end('failed', expires, number, 0, '', '', ''))
  call('ZADD', q.failed, 0, end_member(expires, number, id))
  notify_waiters(q, id)
  emit('invalid_data', q, id, 0)
  emit('failed', q, id, 0)
  ending()
  notices().ended(q, id, { state = 'failed', value = '' })
end

-- Whether an entry that does not fit the record of its job must be dropped, because the job is somewhere else.
local function is_stale(id, rec)
  damaged(q, 1)
  if not is_placed(q, id, parse(rec)) then return false end
  aside = aside + 1
  return true
end

-- An entry of ready is damaged. If it was the turn of a group, that is put back: the turns of all groups are compared
-- with ready after this round.
local turn_lost, turned = false, {} -- turned: the groups that took their turn in this claim
local function drop_entry()
  aside, turn_lost = aside + 1, true
  damaged(q, 1)
end
local function restore_turns()
  turn_lost = false
  for _, group in ipairs(call('HKEYS', q.turns)) do
    local turn = turn_of(q, group)
    if turn then call('ZADD', q.ready, 0, turn) end
  end
end

-- Whether a group takes its turn by this entry. One without a turn that can be read does, unless it is held.
local function has_turn(head, member)
  local turn, group = head.turn, head.group
  local known = turn and is_turn(turn, group)
  if known and member_of(turn, group) == member then return true end
  drop_entry()
  return not known and group ~= '' and not turned[group] and call('HEXISTS', q.holds, group) == 0
end

local function is_solo(rec) return has(byte(rec, 2), SOLO) end

-- Add a job without a group to the open batch, or begin one; false when there is no room for it.
local function take_job(i, member, id, rec)
  if bound_reached() then return false end
  if id == '' or byte(member, 17) ~= 106 then -- 'j'
    drop_entry()
    return true
  end
  if not readable(rec) then
    local format = newer(rec)
    if format then park_entry(i, format) else set_aside(id, rec) end
    return true
  end
  if not is_ranked_by(member, rec) and is_stale(id, rec) then return true end
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

local round
do -- helpers of it alone: a script has at most 200 local variables at once
  -- The records of these jobs, up to the one that reaches the bound. Lengths come first if they could
  -- be long, because to read a long record takes longer than all else.
  local function read_records(wanted)
    local last = #wanted
    if big and last * big > MAX_BYTES then
      local left = room
      for i, id in ipairs(wanted) do
        left = left - math.max(call('HSTRLEN', q.jobs, id) - FIXED, 0)
        if left <= 0 then
          last = i
          break
        end
      end
    end
    return last > 0 and call('HMGET', q.jobs, unpack(wanted, 1, last)) or {}, last
  end

  -- Take the first jobs of a group as a batch of their own, up to one that must run alone or has a newer format. Gives
  -- their number, and the format of the first if that is why there are none.
  local function take_lane(head, found, last, left)
    local taken = 0
    turned[head.group] = true
    for i, id in ipairs(head.ids) do
      if bound_reached() or head.at + i > last then break end
      local rec = found[head.at + i]
      local format = not readable(rec) and newer(rec)
      if format then
        if taken == 0 then return 0, format end
        break
      elseif not readable(rec) then
        set_aside(id, rec)
        left[#left + 1] = head.members[i]
      elseif not is_placed_by(head.members[i], head.id_at, rec) and is_stale(id, rec) then
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

  -- The entries at the front of the order, for groups their turns and the heads of their lanes, and the ids of all their
  -- jobs.
  local function front()
    local entries, heads, wanted, groups, places, lanes = {}, {}, {}, {}, {}, 0
    for i, member in ipairs(call('ZRANGE', q.ready, 0, math.min(limit * size, 1000) - 1)) do
      local name = sub(member, 18)
      if byte(member, 17) == 103 then -- 'g'
        if lanes == limit or #wanted >= MAX_BATCH then break end
        lanes = lanes + 1
        local members, at = lane_head(q, name, math.min(size, MAX_BATCH - #wanted)), id_at(name)
        local head = { group = name, members = members, ids = {}, at = #wanted, id_at = at }
        groups[lanes], places[lanes] = name, i
        for k, lane_entry in ipairs(members) do
          head.ids[k] = sub(lane_entry, at)
          wanted[#wanted + 1] = head.ids[k]
        end
        heads[i] = head
      else
        if #wanted >= MAX_BATCH then break end
        wanted[#wanted + 1] = name
      end
      entries[i] = { name = name, member = member, at = #wanted }
    end
    local turns = lanes > 0 and call('HMGET', q.turns, unpack(groups))
    for i, place in ipairs(places) do heads[place].turn = turns[i] end
    return entries, heads, wanted
  end

  -- Take entries from the front until there is no room; gives the number of entries used, which all lie before the rest.
  function round()
    if limit == 0 then return 0 end
    local entries, heads, wanted = front()
    if #entries == 0 then return 0 end
    local found, last = read_records(wanted)
    local used, left, groups, held, empty = 0, {}, {}, {}, {}
    for i, entry in ipairs(entries) do
      local head = heads[i]
      if head then
        if batches == limit or bound_reached() or head.at + 1 > last and #head.ids > 0 then break end
        local taken, format
        if has_turn(head, entry.member) then taken, format = take_lane(head, found, last, left) end
        if format then
          park_entry(i, format, head.group)
        elseif taken then
          groups[#groups + 1] = head.group
          if taken > 0 then
            held[#held + 1] = head.group
            held[#held + 1] = taken
          else
            empty[#empty + 1] = head.group
          end
        end
      elseif entry.at > last or not take_job(i, entry.member, entry.name, found[entry.at]) then
        break
      end
      used = used + 1
    end
    if used > 0 then call('ZREMRANGEBYRANK', q.ready, 0, used - 1) end
    if #left > 0 then call('ZREM', q.lanes, unpack(left)) end
    if #groups > 0 then call('HDEL', q.turns, unpack(groups)) end
    if #held > 0 then call('HSET', q.holds, unpack(held)) end
    for _, group in ipairs(empty) do regroup(q, group) end
    if turn_lost then restore_turns() end
    return used
  end
end

-- include: gated_claim
local stopped, opens = false, nil
if limited == 1 then stopped, opens = claim_gated() end

-- Again while there is room, because entries that were set aside may have hidden others; bounded.
if limited == 0 then repeat
  local before = aside
  local used = round()
  local full = bound_reached() or batches == limit and (aside == before or solo_batch or filled == size)
until used == 0 or full or aside > PROMOTE end

start_runs(ids, runs)
if limited == 1 then gates().count_runs(q) end
if begun then reset_expiry(q) end
-- Another worker may know the format of the entries that were parked. If the queue or its family allows no more, none need
-- come before it does.
local due = next_due(q)
if opens and (not due or opens < due) then due = opens end
local more = parked > 0 or not stopped and call('ZCARD', q.ready) > 0
local bound = bound_reached() and 2 or 0
if limited == 1 and aside > PROMOTE then bound = #ids == 0 and 1 or 2 end -- there may be open gates behind these
if effects then notices().apply(q) end
return { bound, pass_on(more, due), ids, recs, numbers, corrupt, skipped, limited, known[7], known[7] and now, #parts > 0 and parts or nil }
