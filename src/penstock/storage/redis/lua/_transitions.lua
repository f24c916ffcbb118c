-- Transitions of a job from state to state.
-- include: errors

-- Putting ------------------------------------------------------------------------------------------

local MOVE_ALWAYS, MOVE_LATER, MOVE_EARLIER = 1, 2, 3
-- The flags of an update as one number: payload 1, run-at 2 * (0 never, 1 always, 2 if later, 3 if earlier), counts 8,
-- bounds 16, priority 32, group 64 (only if there is one).
local UPDATE, FRESH = 128, 256 -- set in addition: for every update, and for an id that was just made up
local function flags_of(code)
  return { payload = has(code, 1), move = floor(code / 2) % 4, resets = has(code, 8), bounds = has(code, 16),
    priority = has(code, 32), group = has(code, 64) }
end

local blobs = 5 -- the first bytes are the next argument
-- Bytes are passed as arguments of their own, because msgpack has no type for them here; they are found by number.
local function blob(number) return number and number > 0 and ARGV[blobs + number] or '' end

-- A job to put: id, code (FRESH, UPDATE and the flags of the update), payload, bounds, headers, run-at, delay, priority,
-- group, waiter, start-by time, time to start within, cost, window, longest wait, part in flows; trailing defaults are left off,
-- and false stands for none.
local function read_flow(f)
  local sent, plan = {}, f[6] and { f[6][1], f[6][2], f[6][3], f[6][4], blob(f[6][5]) }
  for i = 1, #f[3], 5 do sent[#sent + 1] = { f[3][i], f[3][i + 1], f[3][i + 2], f[3][i + 3], f[3][i + 4] } end
  return { generation = f[1], dependencies = f[2], notices = sent, binds = blob(f[4]), parent = f[5], plan = plan, open = f[7] }
end

local function read_entry(e)
  local run_at = e[6] or nil
  if e[7] then run_at = now + e[7] end
  local start_by = e[11] or nil
  if e[12] then start_by = now + e[12] end
  return { id = e[1], fresh = has(e[2], FRESH), update = has(e[2], UPDATE) and flags_of(e[2]) or nil,
    code = e[2] % UPDATE, payload = blob(e[3]), bounds = blob(e[4]), headers = blob(e[5]), run_at = run_at,
    priority = e[8] or 0, group = e[9] or nil, waiter = e[10] or nil, start_by = start_by, cost = e[13] or 1,
    window = e[14] or nil, max_wait = e[15] or nil, flow = e[16] and read_flow(e[16]) or nil }
end

-- The queue's acceptance time: the clock, but never backwards. `last` is the time before, if the script has read it.
local function acceptance(q, last)
  local before = rawget(q, 'accepted')
  if before then return before end
  if last == nil then last = call('HGET', q.meta, 'time') end
  local known = to_number(last or 0, false)
  if not known then damaged(q, 1) end
  if not known or known < now then call('HSET', q.meta, 'time', now) end
  q.accepted = math.max(known or now, now)
  return q.accepted
end

-- A new job: ordered by its run-at, else by its acceptance. In a group run-at never sorts a job before ones accepted
-- earlier.
local function accept(q, e, accepted, seq)
  local run_at = e.run_at
  if run_at and e.max_wait then run_at = math.min(run_at, now + e.max_wait) end
  local time = run_at or accepted
  if e.group and time < accepted then time = accepted end
  return { priority = e.priority, time = time, seq = seq, due = run_at or now, created = now,
    attempts = 0, retries = 0, stalls = 0, timeouts = 0, retried = false, solo = false, flow = e.flow and true, group = e.group,
    start_by = e.start_by, cost = e.cost, window = e.window, earliest = 0, bounds = e.bounds, headers = e.headers, error = '', settled = '', payload = e.payload }
end

local function moved(move, run_at, due)
  if not run_at then
    return (move == MOVE_ALWAYS or move == MOVE_EARLIER) and due > now and now or nil
  elseif move == MOVE_ALWAYS then
    return run_at ~= due and run_at or nil
  elseif move == MOVE_LATER then
    return run_at > due and run_at or nil
  elseif move == MOVE_EARLIER then
    return run_at < due and run_at or nil
  end
end

-- Whether an update would leave a job with a group and a priority.
local function has_both(j, e, flags)
  local priority, group = flags.priority and e.priority or j.priority, flags.group and e.group or j.group
  return priority ~= 0 and group ~= nil
end

-- Change a waiting or blocked job in place, by the flags of an update. A job that changes its group is accepted there
-- now: it joins the end, with the sequence number given or a new one, and a backoff does not hold the group.
local function apply(q, j, e, flags, seq)
  if flags.payload then j.payload, j.headers, j.cost = e.payload, e.headers, e.cost end
  if flags.bounds then j.bounds = e.bounds end
  local run_at = e.run_at
  if run_at and e.max_wait then run_at = math.min(run_at, j.created + e.max_wait) end
  local due = moved(flags.move, run_at, j.due)
  if due and due < j.earliest then due = j.earliest end
  if due and due ~= j.due then
    j.due, j.retried, j.time = due, false, due
    if j.group and j.time < now then j.time = now end
  end
  if flags.resets then
    j.attempts, j.retries, j.stalls, j.timeouts, j.solo, j.error = 0, 0, 0, 0, false, ''
  end
  if flags.priority then j.priority = e.priority end
  if flags.group and e.group ~= j.group then
    j.group, j.seq, j.retried = e.group, seq or next_seq(q), false
    j.time = math.max(j.due, acceptance(q))
  end
  if e.start_by and j.attempts == 0 then j.start_by = e.start_by end
end

-- Remove the part of a job in flows, if it may have one.
local function forget_flow(q, id, j)
  if not j or j.flow then flows().forget(q, { id }) end
end

local function forget_end(q, id, ended)
  local state, _, expires, number, _, _, value, bad = parse_end(ended)
  if bad then damaged(q, 1) else call('ZREM', q[state], end_member(expires, number, id)) end
  if state == 'failed' then errors().drop(q, id, number, value) end
  call('HDEL', q.ends, id)
end

-- Store a job, and add it to the order that it belongs to.
local function store(q, id, j)
  if j.due <= now then j.retried = false end
  call('HSET', q.jobs, id, spend(note_length(q, build(j))))
  add_expiry(q, id, j)
  enter(q, id, j)
  regroup(q, j.group, rank(0, now, j.seq))
end

-- Add a waiter (secret and channel) of a job, once; false if the job has too many, which are about equally long.
local function add_waiter(q, id, waiter)
  local waiters, entry = call('HGET', q.waits, id) or '', pack('>H', #waiter) .. waiter
  if string.find(waiters, entry, 1, true) then return true end
  if #waiters + #entry > MAX_WAITERS * #entry then return false end
  call('HSET', q.waits, id, waiters .. entry)
  return true
end

local function remove_waiter(q, id, waiter)
  local waiters = call('HGET', q.waits, id) or ''
  local first, last = string.find(waiters, pack('>H', #waiter) .. waiter, 1, true)
  if not first then return end
  local rest = sub(waiters, 1, first - 1) .. sub(waiters, last + 1)
  if rest == '' then
    call('HDEL', q.waits, id)
  else
    call('HSET', q.waits, id, rest)
  end
end

-- Whether a put may replace a finished job.
local function may_replace(ended, update)
  local state, _, expires, _, counted = parse_end(ended)
  return expires ~= 0 and expires <= now or has(counted, FREE) or update or state ~= 'completed'
end

local put_one
do -- helpers of it alone, as above
  -- The flags of a successor that is put twice: all changes of either update.
  local function merge_codes(first, later_code)
    local a, b = flags_of(first), flags_of(later_code)
    local move = a.move
    if b.move ~= 0 and a.move ~= MOVE_ALWAYS then move = b.move end
    return ((a.payload or b.payload) and 1 or 0) + move * 2 + ((a.resets or b.resets) and 8 or 0)
      + ((a.bounds or b.bounds) and 16 or 0) + ((a.priority or b.priority) and 32 or 0)
      + ((a.group or b.group) and 64 or 0)
  end

  local function accept_now(q, e, seq)
    seq = seq or next_seq(q)
    if seq == 1 then begin_queue(q.prefix, q.name) end
    return accept(q, e, acceptance(q), seq)
  end

  -- Whether the successor of a run, or the job into which it may be merged, would have a group and a priority. `s` is the
  -- successor that there is, with its code. A run whose record is newer is replaced by its successor, not merged.
  local function cannot_block(e, running, s, code)
    local after, flags = { priority = e.priority, group = e.group }, e.update
    if s then
      if has_both(s, e, flags) then return true end
      if not flags.priority then after.priority = s.priority end
      if not flags.group then after.group = s.group end
      flags = flags_of(merge_codes(code, e.code))
    end
    return running and not running.rest and has_both(running, after, flags)
  end

  -- A run may be missing: the job is durable then.
  local function block(q, e, run, rec, seq)
    local waiting = call('HGET', q.blocked, e.id)
    local state = run and 'running' or waiting_state(q, e.id, parse(rec))
    local j = waiting and parse(sub(waiting, 2))
    if waiting and (not j or j.rest) then return { 'duplicate', state } end -- this software cannot read it
    if cannot_block(e, parse(rec), j, waiting and byte(waiting, 1)) then return { 'refused', state } end
    if waiting then
      drop_expiry(q, e.id, j)
      apply(q, j, e, e.update, seq)
      call('HSET', q.blocked, e.id, string.char(merge_codes(byte(waiting, 1), e.code)) .. build(j))
      add_expiry(q, e.id, j)
      emit('updated', q, e.id, j.attempts)
      return { 'updated', 'blocked' }
    end
    local j = accept_now(q, e, seq)
    call('HSET', q.blocked, e.id, string.char(e.code) .. build(j))
    add_expiry(q, e.id, j)
    if run then
      local r = run_of(q, e.id, run)
      r.successor = true
      call('HSET', q.runs, e.id, build_run(r))
    else
      call('ZADD', q.successors, now, e.id)
    end
    emit('enqueued', q, e.id, 0)
    if e.flow then notices().begin(q, e.id .. BLOCKED_PART, j, e.flow) end
    return { 'blocked', 'blocked' }
  end

  local function create(q, e, seq, ends)
    local j = accept_now(q, e, seq)
    if j.window then windows().enter(q, e.id, j, ends) end
    if e.flow and notices().waits(e.flow) then return notices().create(q, e, j) end
    store(q, e.id, j)
    if e.waiter then add_waiter(q, e.id, e.waiter) end
    emit('enqueued', q, e.id, 0)
    if e.flow then notices().begin(q, e.id, j, e.flow) end
    local state = waiting_state(q, e.id, j)
    return { state, state }
  end

  -- waiting -> waiting, changed by the flags of the update
  local function update(q, e, j, seq)
    if has_both(j, e, e.update) then return { 'refused', waiting_state(q, e.id, j) } end
    local group, turn = j.group, rank(0, now, j.seq)
    local suspended = j.flow and flows().is_suspended(q, e.id)
    leave(q, e.id, j)
    apply(q, j, e, e.update, seq)
    if suspended then
      add_expiry(q, e.id, j)
      flows().suspend(q, e.id, j, flows().load(q, e.id))
      call('HSET', q.jobs, e.id, spend(note_length(q, build(j))))
    else
      store(q, e.id, j)
    end
    if j.group ~= group then regroup(q, group, turn) end
    emit('updated', q, e.id, j.attempts)
    return { 'updated', waiting_state(q, e.id, j) }
  end

  -- The answer to a put of an id that waits or runs.
  local function put_known(q, e, rec, seq)
    local run = call('HGET', q.runs, e.id)
    if run then return e.update and block(q, e, run, rec, seq) or { 'duplicate', 'running' } end
    local j = parse(rec)
    if not j then return { 'duplicate', 'queued' } end -- damaged: the id is taken until a claim fails the job
    if e.update and j.flow and flows().is_durable(q, e.id) then return block(q, e, nil, rec, seq) end
    if not e.update or j.rest then return { 'duplicate', waiting_state(q, e.id, j) } end
    return update(q, e, j, seq)
  end

  -- nothing -> queued / scheduled / blocked, or updated, or the existing state
  function put_one(q, e, seq)
    local rec = spend(call('HGET', q.jobs, e.id))
    local ends = e.window and windows().end_of(q, e.id)
    if rec or e.group then promote(q) end
    if not rec then return ends and windows().refuse(e, ends) or create(q, e, seq, ends) end
    local ended = spend(call('HGET', q.ends, e.id))
    if ended then
      if may_replace(ended, e.update) then
        if ends and not e.update then return windows().refuse(e, ends) end
        forget_end(q, e.id, ended)
        forget_histories(q, { e.id })
        forget_flow(q, e.id, parse(rec))
        return create(q, e, seq, ends)
      end
      local state, _, _, _, _, _, value = parse_end(ended)
      return { 'completed', state, value }
    end
    local answer = put_known(q, e, rec, seq)
    if e.waiter and answer[1] ~= 'refused' then add_waiter(q, e.id, e.waiter) end
    if ends and (answer[1] == 'duplicate' or answer[1] == 'refused') then answer[3], answer[4] = false, ends end
    return answer
  end
end

-- Ending -------------------------------------------------------------------------------------------

local function drop_run(q, id, run)
  hold(q, run.group, -1)
  call('HDEL', q.runs, id)
  end_runs(q, run.token, 1)
  if run.limited then q.freed = true end
end

-- Take the successor of a job out of `blocked`; nil if there is none, or none that can be read.
local function take_successor(q, id)
  local waiting = call('HGET', q.blocked, id)
  if not waiting then return nil end
  call('HDEL', q.blocked, id)
  if rawget(q, 'has_parts') then call('ZREM', q.successors, id) end
  local j = parse(sub(waiting, 2))
  if not j then damaged(q, 1) end
  return j, byte(waiting, 1)
end

-- Remove the successor of a job, and of its run if it has one.
local function drop_successor(q, id, run)
  local j = parse(sub(call('HGET', q.blocked, id) or '', 2))
  drop_expiry(q, id, j)
  call('HDEL', q.blocked, id)
  if not j or j.flow then notices().gone(q, id) end
  if not run then
    call('ZREM', q.successors, id)
    return
  end
  run.successor = false
  call('HSET', q.runs, id, build_run(run))
end

-- -> completed / failed / cancelled, in one step with the release of the successor. `how` has:
-- state, token ('' when no run ended it), worker (after the time of its claim), ttl (nil: for ever), value, counted, group,
-- successor (whether there may be one), attempt (for the event), job (if its record can be read), letter (how its dependents
-- see the end, if not by its state), mode (how running children are cancelled).
local function finish(q, id, how)
  local number = next_end(q)
  if how.state ~= 'completed' then count_total(q, how.state) end
  local ttl, counted = how.ttl, how.counted
  if ttl == 0 and call('HEXISTS', q.waits, id) == 1 then ttl, counted = WAITED_MS, counted + FREE end
  local part = not how.job or how.job.flow
  if part then q.has_parts = true end
  local replaced = how.successor and take_successor(q, id)
  notify_waiters(q, id, not replaced and how.state, how.value)
  emit(how.state, q, id, how.attempt or 0, how.worker and sub(how.worker, 7),
    how.state == 'completed' and how.value or nil,
    (how.state == 'failed' or how.state == 'cancelled' and how.value ~= '') and how.value or nil)
  if part then notices().ended(q, id, how) end
  if (how.ttl == 0 or replaced) and how.token ~= '' then
    call('ZADD', q.gone, now + GONE_MS, how.token .. string.char(STATES[how.state]) .. id)
  end
  if ttl == 0 or replaced then
    call('HDEL', q.jobs, id)
    forget_histories(q, { id })
    if part then flows().forget(q, { id }) end
  else
    local expires = ttl and now + ttl or 0
    call('HSET', q.ends, id, build_end(how.state, expires, number, counted, how.token, how.worker or '', how.value))
    call('ZADD', q[how.state], 0, end_member(expires, number, id))
    if how.state == 'failed' then errors().add(q, id, number, how.value) end
  end
  if how.state == 'failed' then errors().note(q, id, how.value) end
  if how.state ~= 'completed' and how.job and how.job.window then windows().free(q, id, how.job) end
  if replaced then -- the successor becomes the job, unconditionally
    if replaced.window then windows().enter(q, id, replaced, windows().end_of(q, id)) end
    if replaced.flow or part then replaced.flow = flows().move(q, id .. BLOCKED_PART, id, true) and true end
    store(q, id, replaced)
  end
  regroup(q, how.group)
end

local give_back
do -- helpers of it alone, as above
  local function replace(j, s)
    if not s.rest then s.settled = j.settled end
    for key in pairs(j) do j[key] = nil end
    for key, value in pairs(s) do j[key] = value end
  end

  -- running -> waiting; a blocked successor is merged into the job as an update, by its own flags.
  function give_back(q, id, j, name, worker)
    local group = j.group
    j.retried, j.start_by = j.due > now, nil
    emit(name, q, id, j.attempts, sub(worker, 7), nil, name == 'retrying' and #j.error > 0 and j.error or nil)
    local durable = j.flow and flows().is_durable(q, id)
    if durable then flows().keep_successor(q, id, worker) end
    local s, code
    if not durable then s, code = take_successor(q, id) end
    if s then
      drop_expiry(q, id, s)
      if s.flow or j.flow then
        j.flow = flows().move(q, id .. BLOCKED_PART, id, false) and true or j.flow
        s.flow = j.flow
      end
      if s.rest or j.rest then
        if j.window then windows().free(q, id, j) end
        forget_histories(q, { id })
        replace(j, s) -- this software cannot merge records that it cannot read
        if j.window then windows().enter(q, id, j, windows().end_of(q, id)) end
        regroup(q, group)
      else
        s.run_at = s.due > now and s.due or nil
        apply(q, j, s, flags_of(code))
        if j.group ~= group then regroup(q, group) end
      end
      emit('updated', q, id, j.attempts)
    end
    if j.due <= now then j.retried = false end
    call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    add_expiry(q, id, j)
    enter(q, id, j)
    regroup(q, j.group)
  end
end
-- include: notices
