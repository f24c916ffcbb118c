-- put: nothing -> queued / scheduled / blocked, or updated, or the existing state
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index limits gates closed recheck idle_gates attempts log stream meta waits wake error_order errors gone generations notices suspended successors
-- args: caller, number, retry window (ms): of a call whose ids were all just made up; else '' 0 0
--       'fresh' or 'named', waiter or '', then id, payload, ...: plain jobs; ids just made up, or all different
--       'any', entries (msgpack: a list of jobs, see read_entry), blobs...
--       'bounded', entries, blobs..., how many jobs may wait then
-- gives: {-1, {how many wait, how many these would add}} when more would wait than may; else
--        {1 when the queue is new, 1 (all queued) or a list of 1 (queued) or {status (or refused), state, result or nil, end of the window or nil}};
--        the list of a call that is neither bounded nor numbered may end early: send the rest again
--
-- A call with made-up ids is sent again when its answer does not come, so it may arrive twice, in any order and
-- with anything between. A caller makes its calls one after the other and numbers them: one whose number is not
-- above the last is answered and not made again. That takes one command per call, however many jobs it has.
-- include: fast_put
local form, repeated, last = ARGV[7], false, false
local key, number, ms = prefix .. 'puts:' .. ARGV[4], ARGV[5], ARGV[6]
if ARGV[4] ~= '' then
  last = call('SET', key, number, 'PX', ms, 'GET')
  if last and (tonumber(last) or 0) >= tonumber(number) then
    call('SET', key, last, 'PX', ms)
    repeated = true
  end
end

local answer = not repeated and all_plain(form) and put_together()
if answer then return answer end

-- include: queue shared transitions expiry
local q = queue_at(prefix, ARGV[3])
local entries, gives, own = {}, {}, {}
blobs = 8
if form == 'any' or form == 'bounded' then
  entries = cmsgpack.unpack(ARGV[8])
else
  local waiter = ARGV[8] ~= ''
  for i = 9, #ARGV, 2 do
    local e = { ARGV[i], form == 'fresh' and FRESH or 0, i - 7 }
    if waiter then e[4], e[5], e[6], e[7], e[8], e[9], e[10] = 0, 0, false, false, 0, false, ARGV[8] end
    entries[#entries + 1] = e
  end
end

if repeated then -- the answer of the first time, even if the jobs have run since
  for i, e in ipairs(entries) do
    local run_at = read_entry(e).run_at
    gives[i] = run_at and run_at > now and { 'scheduled', 'scheduled' } or 1
  end
  return { 1, gives }
end

meta = call('HMGET', q.meta, 'time', 'expiry', 'big', 'limited')
know_limits(q, meta[4])
if meta[2] then expire(q, meta[2]) end

-- Ids that may be taken are looked up together, and new jobs are written together.
local known, ask, grouped = {}, {}, false
for _, e in ipairs(entries) do
  if e[2] < FRESH then ask[#ask + 1] = e[1] end
  grouped = grouped or e[9]
end
if meta[3] and #ask * to_number(meta[3], MAX_BYTES) > MAX_BYTES then
  for _, id in ipairs(ask) do known[id] = call('HEXISTS', q.jobs, id) == 1 end
elseif #ask > 0 then
  local found = call('HMGET', q.jobs, unpack(ask))
  for i, id in ipairs(ask) do known[id] = found[i] and true or false end
end

-- Whether a job would be a new one: its id is free, or it replaces a finished job, as in `put_one`.
local function is_new(e)
  local entry = read_entry(e)
  if e[14] and windows().refuse(entry, windows().end_of(q, e[1])) then return false end
  if e[2] >= FRESH or not known[e[1]] then return true end
  local ended = call('HGET', q.ends, e[1])
  return ended and may_replace(ended, entry.update)
end

if form == 'bounded' then
  local added, new = 0, {}
  for _, e in ipairs(entries) do
    if not new[e[1]] and is_new(e) then new[e[1]], added = true, added + 1 end
  end
  local waiting = call('ZCARD', q.ready) + call('ZCARD', q.parked) - call('HLEN', q.turns) + call('ZCARD', q.lanes)
    + call('ZCARD', q.scheduled) + call('ZCARD', q.retrying)
  if added > 0 and waiting + added > tonumber(ARGV[#ARGV]) then
    if last then -- this call had no effect: sent again, it is made
      call('SET', key, last, 'PX', ms)
    elseif ARGV[4] ~= '' then
      call('DEL', key)
    end
    return { -1, { waiting, added } }
  end
end
if grouped then promote(q) end

local seq = take_seq(q, #entries) - #entries
if seq == 0 then begin_queue(q.prefix, q.name) end
local accepted -- of the first new job: updates alone do not move the time of the queue

-- Put all jobs. Its variables are its own: a script has at most 200 local ones at once.
local function put_all()
  local jobs, ready, scheduled, lanes, groups, first, first_due = {}, {}, {}, {}, {}, {}, nil

  local function add(list, value)
    list[#list + 1] = 0
    list[#list + 1] = value
  end

  local function add_new(e, number)
    accepted = accepted or acceptance(q, meta[1])
    local id, j = e[1], accept(q, read_entry(e), accepted, number)
    own[id] = true
    jobs[#jobs + 1] = id
    jobs[#jobs + 1] = note_length(q, build(j))
    if j.start_by then add_expiry(q, id, j) end
    if listened then emit('enqueued', q, id, 0) end
    if j.due > now then
      add(scheduled, due_member(j, id))
      if j.group and limited_by(q) > 0 and not first[j.group] then
        groups[#groups + 1] = j.group
        first[j.group] = { number }
      end
      first_due = first_due and math.min(first_due, j.due) or j.due
      return { 'scheduled', 'scheduled' }
    elseif j.group then
      local member = lane_member(j, id)
      add(lanes, member)
      if not first[j.group] then groups[#groups + 1] = j.group end
      if not first[j.group] or not first[j.group][2] then first[j.group] = { number, member } end
    else
      add(ready, rank(j.priority, j.time, j.seq) .. 'j' .. id)
    end
    return 1
  end

  -- Groups that got jobs and are neither held nor in the rotation take their turn.
  local function give_turns()
    if limited_by(q) > 0 then
      local ranks = {}
      for i, group in ipairs(groups) do ranks[i] = rank(0, now, first[group][1]) end
      return gates().look_at_all(q, groups, ranks)
    end
    local turns, holds = call('HMGET', q.turns, unpack(groups)), call('HMGET', q.holds, unpack(groups))
    local hset = {}
    for i, group in ipairs(groups) do
      local number, head = unpack(first[group])
      if not turns[i] and not holds[i] then
        local member = rank(0, now, number) .. 'g' .. group
        hset[#hset + 1] = group
        hset[#hset + 1] = member .. head
        add(ready, member)
      elseif head < (known_head(turns[i], group) or '') then -- it sorts before jobs put by a client with another clock
        forget_head(q, group)
      end
    end
    if #hset > 0 then call('HSET', q.turns, unpack(hset)) end
  end

  local function flush()
    if #jobs == 0 then return end
    call('HSET', q.jobs, unpack(jobs))
    if #lanes > 0 then call('ZADD', q.lanes, unpack(lanes)) end
    if #groups > 0 then give_turns() end
    if #ready > 0 then
      call('ZADD', q.ready, unpack(ready))
      wake(q)
    end
    if #scheduled > 0 then
      call('ZADD', q.scheduled, unpack(scheduled))
      wake_by(q, first_due)
    end
    jobs, ready, scheduled, lanes, groups, first, first_due = {}, {}, {}, {}, {}, {}, nil
  end

  for i, e in ipairs(entries) do
    local id = e[1]
    if (e[2] >= FRESH or known[id] == false) and not own[id] and not e[10] and not e[14] then
      gives[i] = add_new(e, seq + i)
    else
      flush()
      own[id] = true
      gives[i] = put_one(q, read_entry(e), seq + i)
      if budget <= 0 and ARGV[4] == '' and form ~= 'bounded' then break end
    end
  end
  flush()
end
put_all()
return { seq == 0 and 1 or 0, gives }
