-- claim: due -> running
-- keys: jobs runs ends ready scheduled retrying lanes turns holds leases batches failed meta waits wake
-- args: token worker lease limit batch
-- gives: {again, look_at or false, {id, record, batch number, ...}, {corrupt id, ...}}
local q = queue_at(ARGV[2], ARGV[3])
local token, worker, lease, limit, size = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8])
if call('HEXISTS', q.meta, 'paused') == 1 then return { 0, false, {}, {} } end
if promote(q) then return { 1, false, {}, {} } end

local gives, corrupt, ids, runs = {}, {}, {}, {}
local batches, filled, solo_batch = 0, 0, true -- filled: jobs in the open batch without a group

local function take(id, rec, group)
  gives[#gives + 1] = id
  gives[#gives + 1] = rec
  gives[#gives + 1] = batches - 1
  ids[#ids + 1] = id
  runs[#runs + 1] = id
  runs[#runs + 1] = group and build_run({ token = token, cancel = 0, group = group, ttl = 0 }) or token
  if ears then note('started', q, id, (parse(rec) or { attempts = 0 }).attempts + 1, worker) end
end

-- A record that cannot be read ends as failed, its bytes kept; one that is missing is passed over.
local function set_aside(id, rec)
  if not rec then
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

local function take_lane(group)
  local head, at = lane_head(q, group, size)
  call('HDEL', q.turns, group)
  local names = {}
  for i, member in ipairs(head) do names[i] = sub(member, at) end
  local recs = #names > 0 and call('HMGET', q.jobs, unpack(names)) or {}
  local taken, gone = 0, {}
  for i, id in ipairs(names) do
    local rec = recs[i]
    if not readable(rec) then
      set_aside(id, rec)
      gone[#gone + 1] = head[i]
    else
      if is_solo(rec) and taken > 0 then break end
      if taken == 0 then batches = batches + 1 end
      taken = taken + 1
      gone[#gone + 1] = head[i]
      take(id, rec, group)
      if is_solo(rec) then break end
    end
  end
  if #gone > 0 then call('ZREM', q.lanes, unpack(gone)) end
  if taken > 0 then hold(q, group, taken) else regroup(q, group) end
  filled, solo_batch = 0, true
end

local function take_job(id, rec)
  if not readable(rec) then
    set_aside(id, rec)
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

local function round()
  local entries = limit > 0 and call('ZRANGE', q.ready, 0, math.min(limit * size, 1000) - 1) or {}
  local wanted = {}
  for _, member in ipairs(entries) do wanted[#wanted + 1] = sub(member, 18) end
  local recs = #wanted > 0 and call('HMGET', q.jobs, unpack(wanted)) or {}
  for i, member in ipairs(entries) do
    if byte(member, 17) == 103 then -- 'g'
      if batches == limit then break end
      call('ZREM', q.ready, member)
      take_lane(wanted[i])
    else
      if not take_job(wanted[i], recs[i]) then break end
      call('ZREM', q.ready, member)
    end
  end
  return #entries
end

-- Without batches and lanes every entry is one run: take them off the front in one command.
local function quick_round()
  local entries = limit > 0 and call('ZRANGE', q.ready, 0, limit - 1) or {}
  local wanted = {}
  for i, member in ipairs(entries) do
    if byte(member, 17) ~= 106 then return false end -- 'j'
    wanted[i] = sub(member, 18)
  end
  if #wanted == 0 then return true end
  local recs = call('HMGET', q.jobs, unpack(wanted))
  call('ZREMRANGEBYRANK', q.ready, 0, #wanted - 1)
  for i, id in ipairs(wanted) do take_job(id, recs[i]) end
  return true
end

if size > 1 or not quick_round() then
  repeat
    local before = batches
    local seen = round()
  until seen == 0 or batches == limit or batches == before
end

if #ids > 0 then
  call('HSET', q.runs, unpack(runs))
  call('ZADD', q.leases, now + lease, token)
  call('HSET', q.batches, 'b' .. token, cmsgpack.pack(ids), 'n' .. token, #ids, 'w' .. token, worker)
end

local look_at = false
if call('ZCARD', q.ready) > 0 then
  wake(q)
else
  -- Nothing is left: whoever was to be woken need not come. One worker, this or another, is to look
  -- when the next job falls due.
  call('DEL', q.wake)
  local due
  for _, line in ipairs({ q.scheduled, q.retrying }) do
    local head = call('ZRANGE', line, 0, 0)[1]
    local at = head and unpack_head('>I6', head)
    if at and (not due or at < due) then due = at end
  end
  local alarm = tonumber(call('HGET', q.meta, 'alarm') or 0)
  if due and (alarm <= now or due < alarm) then
    call('HSET', q.meta, 'alarm', due)
    look_at = due
  end
end
return { 0, look_at, gives, corrupt }
