-- put: nothing -> queued / scheduled / blocked, or updated, or the existing state
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs completed failed cancelled meta waits wake
-- args: caller, number, for how long (ms) it is remembered: of a call whose ids were all just made up; else '' 0 0
--       'fresh' or 'named', waiter or '', then id, payload, ...: jobs that have nothing else; ids just made up, or all
--       different
--       'any', entries (msgpack: a list of asked-for jobs, see read_entry), blobs...
-- gives: {1 when the queue is new, 1 (all queued) or a list of 1 (queued) or {status, state, result?}}
--
-- A call with made-up ids is sent again when its answer does not come, so it may arrive twice, in any order and
-- with anything between. A caller makes its calls one after the other and numbers them: one whose number is not
-- above the last is answered and not made again. That takes one command per call, however many jobs it has.
local prefix, made = ARGV[2], false
if ARGV[4] ~= '' then
  local key, number, ms = prefix .. 'puts:' .. ARGV[4], ARGV[5], ARGV[6]
  local last = call('SET', key, number, 'PX', ms, 'GET')
  if last and tonumber(last) >= tonumber(number) then
    call('SET', key, last, 'PX', ms)
    made = true
  end
end

-- Whether nobody has these ids.
local form = ARGV[7]
local free = form == 'fresh'
if form == 'named' and not ears then
  local ids = {}
  for i = 9, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  free = true
  for _, taken in ipairs(call('HMGET', prefix .. 'jobs', unpack(ids))) do free = free and not taken end
end

-- Most jobs are new, due at once and nothing but an id and a payload: they are written together. This stands
-- before the helpers, which would take a third of its time, and makes no lists for a single job.
if free and not made and not ears then
  local meta_key = prefix .. 'meta'
  local meta = call('HMGET', meta_key, 'seq', 'time')
  local seq, accepted = tonumber(meta[1] or 0), tonumber(meta[2] or 0)
  local before, after = pack('>BB', FORMAT, SHORT), ''
  if accepted > now then -- the clock was set back
    before, after = pack('>BBi4', FORMAT, 0, 0), pack('>I6I6HHHHHHHI4', now, now, 0, 0, 0, 0, 0, 0, 0, 0)
  else
    accepted = now
  end
  local first, count = seq == 0, (#ARGV - 8) / 2
  local channel = ARGV[8] ~= '' and pack('>H', #ARGV[8]) .. ARGV[8]
  call('HSET', meta_key, 'seq', seq + count, 'time', accepted)
  if first then call('SADD', KEYS[2], ARGV[3]) end
  if count == 1 then
    local id, place_in_line = ARGV[9], pack('>I6I6', accepted, seq + 1)
    call('HSET', prefix .. 'jobs', id, before .. place_in_line .. after .. ARGV[10])
    call('ZADD', prefix .. 'ready', '0', PLAIN_RANK .. place_in_line .. 'j' .. id)
    if channel then call('HSET', prefix .. 'waits', id, channel) end
  else
    local jobs, ready, waits = {}, {}, {}
    for i = 1, 2 * count, 2 do
      seq = seq + 1
      local id, place_in_line = ARGV[8 + i], pack('>I6I6', accepted, seq)
      jobs[i], jobs[i + 1] = id, before .. place_in_line .. after .. ARGV[9 + i]
      ready[i], ready[i + 1] = '0', PLAIN_RANK .. place_in_line .. 'j' .. id
      if channel then waits[i], waits[i + 1] = id, channel end
    end
    call('HSET', prefix .. 'jobs', unpack(jobs))
    call('ZADD', prefix .. 'ready', unpack(ready))
    if channel then call('HSET', prefix .. 'waits', unpack(waits)) end
  end
  if call('LLEN', prefix .. 'wake') == 0 then -- as `wake`
    call('LPUSH', prefix .. 'wake', '1')
    call('PEXPIRE', prefix .. 'wake', WAKE_MS)
  end
  return { first and 1 or 0, 1 }
end

-- include: queue shared transitions
local q = queue_at(prefix, ARGV[3])
local entries, gives, mine = {}, {}, {}
if form == 'any' then
  blobs = 8
  entries = cmsgpack.unpack(ARGV[8])
else
  blobs = 8
  local told = ARGV[8] ~= ''
  for i = 9, #ARGV, 2 do
    local e = { ARGV[i], form == 'fresh' and 64 or 0, i - 7 }
    if told then e[4], e[5], e[6], e[7], e[8], e[9], e[10] = 0, 0, false, false, 0, false, ARGV[8] end
    entries[#entries + 1] = e
  end
end

if made then -- whatever has become of them since
  for i, e in ipairs(entries) do
    local asked = read_entry(e).asked
    gives[i] = asked and asked > now and { 'scheduled', 'scheduled' } or 1
  end
  return { 1, gives }
end

-- Ids that may be taken are looked up together, and what turns out to be new is written together.
local known, ask, grouped = {}, {}, false
for _, e in ipairs(entries) do
  if e[2] < 64 then ask[#ask + 1] = e[1] end
  grouped = grouped or e[9]
end
if #ask > 0 then
  local found = call('HMGET', q.jobs, unpack(ask))
  for i, id in ipairs(ask) do known[id] = found[i] and true or false end
end
if grouped then promote(q) end

local seq = call('HINCRBY', q.meta, 'seq', #entries) - #entries
if seq == 0 then call('SADD', KEYS[2], q.name) end
local accepted = acceptance(q)
local before, after = pack('>BBi4I6', FORMAT, 0, 0, accepted), pack('>I6I6HHHHHHHI4', now, now, 0, 0, 0, 0, 0, 0, 0, 0)
if accepted == now then before, after = pack('>BBI6', FORMAT, SHORT, accepted), '' end
local rank_before = pack('>I4I6', 2147483647, accepted)

local jobs, ready, scheduled, lanes, groups, first, due_first = {}, {}, {}, {}, {}, {}, nil

local function add(list, value)
  list[#list + 1] = 0
  list[#list + 1] = value
end

local function add_job(id, record)
  mine[id] = true
  jobs[#jobs + 1] = id
  jobs[#jobs + 1] = record
  note('enqueued', q, id, 0)
end

-- A plain job: nothing but an id and a payload, due at once.
local function add_plain(e, number)
  local place_in_line = pack('>I6', number)
  add_job(e[1], before .. place_in_line .. after .. blob(e[3]))
  add(ready, rank_before .. place_in_line .. 'j' .. e[1])
  return 1
end

local function add_new(e, number)
  local j = accept(q, read_entry(e), accepted, number)
  add_job(e[1], build(j))
  if j.due > now then
    add(scheduled, due_member(j, e[1]))
    due_first = due_first and math.min(due_first, j.due) or j.due
    return { 'scheduled', 'scheduled' }
  elseif j.group then
    local member = lane_member(j, e[1])
    add(lanes, member)
    if not first[j.group] then
      groups[#groups + 1] = j.group
      first[j.group] = { number, member }
    end
  else
    add(ready, rank(j.priority, j.time, j.seq) .. 'j' .. e[1])
  end
  return 1
end

-- Groups that got work and are neither held nor in the rotation take their turn.
local function give_turns()
  local turns, holds = call('HMGET', q.turns, unpack(groups)), call('HMGET', q.holds, unpack(groups))
  local hset = {}
  for i, group in ipairs(groups) do
    local number, head = unpack(first[group])
    if not turns[i] and not holds[i] then
      local member = rank(0, now, number) .. 'g' .. group
      hset[#hset + 1] = group
      hset[#hset + 1] = member .. head
      add(ready, member)
    elseif head < (known_head(turns[i], group) or '') then -- before what another clock has put here
      forget_head(q, group)
    end
  end
  if #hset > 0 then call('HSET', q.turns, unpack(hset)) end
end

local function flush()
  if #jobs == 0 then return end
  call('HSET', q.jobs, unpack(jobs))
  if #lanes > 0 then
    call('ZADD', q.lanes, unpack(lanes))
    give_turns()
  end
  if #ready > 0 then
    call('ZADD', q.ready, unpack(ready))
    wake(q)
  end
  if #scheduled > 0 then
    call('ZADD', q.scheduled, unpack(scheduled))
    later(q, due_first)
  end
  jobs, ready, scheduled, lanes, groups, first, due_first = {}, {}, {}, {}, {}, {}, nil
end

for i, e in ipairs(entries) do
  local id = e[1]
  if (e[2] >= 64 or known[id] == false) and not mine[id] and not e[10] then
    gives[i] = #e == 3 and add_plain(e, seq + i) or add_new(e, seq + i)
  else
    flush()
    mine[id] = true
    gives[i] = put_one(q, read_entry(e), seq + i)
  end
end
flush()
return { seq == 0 and 1 or 0, gives }
