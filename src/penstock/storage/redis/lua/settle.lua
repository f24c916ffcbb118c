-- settle: running -> completed / retrying / failed / cancelled / queued, fenced by the token
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake generations notices suspended successors
-- args: 'completed', {{token, ttl (-1: for ever), count}, ...} (msgpack), then id, result, ...: completions that
--       are kept and put no jobs, all of different ids
--       'any', settlements (msgpack: a list of {id, token, kind, ...}, see below), blobs...
-- gives: 1 (all completed) or a list, which may end early (send the rest again), of 1 (completed), 0 (lost) or the name of
--        the state
--
-- kinds: c complete {ttl (-1: for ever), result, then}   f fail {ttl, error, counts a timeout, then, ran, brief}
--        r retried {at or false, delay, count, position due, solo, error, 'group' or 'queue' to pause or false, brief}
--        x cancel {ttl, ran}
--        l release {}   s stall {}
--        p suspend {{checkpoint {name, kind, value, signals}, ...}, children (as `then`), first, count, wait {checkpoint, names} or
--        false, at or false, delay or false, name of the sleep or false}
-- The last of fail is a list of culprits: numbers of dependencies.
-- `ran` false: the claim called no handler, so it does not count as an attempt.
-- `brief` is the error for the attempts, 0 or absent if that is `error`.
-- `then` is a list of {queue prefix, queue name, job (see read_entry)}.
local q = queue_at(ARGV[2], ARGV[3])
local form, given = ARGV[4], cmsgpack.unpack(ARGV[5])

-- include: ordering run_ends fast_settle
local plain = FAST and form == 'completed' and plain_runs(given)
local complete = plain and (plain.limited and complete_limited or complete_together)
local answer = complete and complete(given, plain)
if answer then return answer end

-- include: shared transitions expiry suspending
if plain and plain.limited then
  if #plain.groups > 0 then promote(q) end
  if complete_together(given, plain) then
    if #plain.groups > 0 then gates().look_at_all(q, plain.groups) end
    gates().freed(q)
    return 1
  end
end
local settlements, gives = given, {}
if form == 'completed' then
  settlements = {}
  local at = 6
  for _, part in ipairs(given) do
    for i = at, at + 2 * part[3] - 2, 2 do
      settlements[#settlements + 1] = { ARGV[i], part[1], 'c', part[2], i - 4, false }
    end
    at = at + 2 * part[3]
  end
end

local function ttl_of(value) if value >= 0 then return value end end

-- Put follow-up jobs. A queue keeps the gates that were read of it, so those for this queue use its own table.
local function put_all(jobs, entries)
  for _, new in ipairs(jobs or {}) do expire(other_queue(q, new[1], new[2])) end
  for i, new in ipairs(jobs or {}) do
    local e, of = entries and entries[i] or read_entry(new[3]), other_queue(q, new[1], new[2])
    if e.flow then notices().put(of, e) else put_one(of, e) end
  end
end

-- The same for the follow-up jobs of a run that has ended: its notices are applied after them, so that a plan knows its
-- children.
local function put_follow_ups(jobs, entries)
  if not jobs then return end
  if not effects then return put_all(jobs, entries) end
  local held = notices().hold()
  put_all(jobs, entries)
  notices().release(held)
end

local POSSIBLE = { c = { completed = true }, f = { failed = true, cancelled = true } }
local ONLY_CANCELLED = { cancelled = true }

-- The same settlement again is answered as before; any other has lost its claim.
local function settled_before(s)
  local id, token, kind = s[1], s[2], s[3]
  local possible = POSSIBLE[kind] or ONLY_CANCELLED
  for code, state in ipairs(STATE_NAMES) do
    local expires = call('ZSCORE', q.gone, token .. string.char(code) .. id)
    if expires and (tonumber(expires) or 0) > now and possible[state] then return state end
  end
  local ended = spend(call('HGET', q.ends, id))
  if ended then
    local state, _, expires, _, _, by = parse_end(ended)
    if by == token and (expires == 0 or expires > now) and possible[state] then return state end
    return 0
  end
  if call('HEXISTS', q.runs, id) == 1 then return 0 end
  local j = parse(spend(call('HGET', q.jobs, id)))
  if j and j.settled == token .. kind then return waiting_state(q, id, j) end
  return 0
end

-- Add a run that neither completed nor was released to the attempts of its job, unless it called no handler.
local function record(id, run, j, kind, s)
  if kind == 'c' or run.attempt == 0 or (kind == 'l' or kind == 'p') and run.cancel == 0 then return end
  local outcome, error = 'stalled', ''
  if run.cancel > 0 or kind == 'x' then
    outcome = 'cancelled'
  elseif kind == 'f' then
    outcome, error = 'failed', blob(s[9] and s[9] > 0 and s[9] or s[5])
  elseif kind == 'r' then
    outcome, error = 'retrying', blob(s[11] and s[11] > 0 and s[11] or s[9])
  end
  histories().add_attempt(q, id, run.token, j.attempts + 1, outcome, run.worker, error)
end

local function finish_run(id, run, j, state, ttl, value, counted)
  drop_run(q, id, run)
  finish(q, id, { state = state, token = run.token, worker = run.worker, ttl = ttl, value = value,
    counted = run.attempt + counted, group = run.group, successor = run.successor, attempt = j.attempts + run.attempt,
    job = j })
  return state
end

local function give_back_run(id, run, j, kind, name)
  drop_run(q, id, run)
  j.settled = run.token .. kind
  give_back(q, id, j, name, run.worker)
  return waiting_state(q, id, j)
end

local function retry(id, run, j, s)
  j.attempts = j.attempts + 1
  count_total(q, 'retried')
  if s[6] == 'timeouts' then
    j.timeouts = j.timeouts + 1
    count_total(q, 'timed_out')
    emit('timed_out', q, id, j.attempts, sub(run.worker, 7))
  elseif s[6] == 'retries' then
    j.retries = j.retries + 1
  end
  j.due = s[4] or now + s[5]
  if s[7] and not j.group then
    j.time, j.seq = math.max(j.due, now), next_seq(q)
  end
  j.solo, j.error = s[8], blob(s[9])
  if s[10] and j.due > now then gates().pause_until(q, s[10] == 'group' and j.group or nil, j.due) end
  return give_back_run(id, run, j, 'r', 'retrying')
end

local function settle_one(s)
  local id, token, kind = s[1], s[2], s[3]
  local held = call('HGET', q.runs, id)
  if not held or sub(held, 1, 16) ~= token then return settled_before(s) end
  local run = run_of(q, id, held)
  if run.group or run.successor then promote(q) end
  run.worker = call('HGET', q.batches, 'w' .. token) or ''
  local uncounted = (kind == 'f' and s[8] == false) or (kind == 'x' and s[5] == false)
  run.attempt = uncounted and 0 or COUNT_ATTEMPT
  local j = parse(spend(call('HGET', q.jobs, id)))
  if not j then -- its record was damaged while it ran: it fails, and its bytes are kept
    damaged(q, 1)
    return finish_run(id, run, { attempts = 0, flow = true }, 'failed', FAILED_MS, kind == 'f' and blob(s[5]) or '', 0)
  end
  record(id, run, j, kind, s)
  if kind == 'c' then
    local entries = s[6] and j.flow and suspending().adopt(q, id, s[6])
    finish_run(id, run, j, 'completed', ttl_of(s[4]), blob(s[5]), 0)
    put_follow_ups(s[6], entries)
    return 1
  elseif run.cancel > 0 then
    return finish_run(id, run, j, 'cancelled', run.ttl, '', 0)
  elseif kind == 'f' then
    if s[6] then
      count_total(q, 'timed_out')
      emit('timed_out', q, id, j.attempts + run.attempt, sub(run.worker, 7))
    end
    if s[10] and j.flow then suspending().blame(q, id, s[10]) end
    finish_run(id, run, j, 'failed', ttl_of(s[4]), blob(s[5]), s[6] and COUNT_TIMEOUT or 0)
    put_follow_ups(s[7])
    return 'failed'
  elseif kind == 'x' then
    return finish_run(id, run, j, 'cancelled', ttl_of(s[4]), '', 0)
  elseif kind == 'l' then
    j.due = now
    return give_back_run(id, run, j, 'l', 'released')
  elseif kind == 'p' then
    drop_run(q, id, run)
    j.settled = run.token .. 'p'
    return suspending().suspend(q, id, j, s, run.worker, put_all)
  elseif kind == 's' then
    count_total(q, 'stalled')
    j.attempts, j.stalls, j.solo, j.due = j.attempts + 1, j.stalls + 1, true, now
    return give_back_run(id, run, j, 's', 'stalled')
  end
  return retry(id, run, j, s)
end

for i, s in ipairs(settlements) do
  gives[i] = settle_one(s)
  if effects then notices().apply(q) end
  if budget <= 0 then break end
end
if rawget(q, 'freed') then gates().freed(q) end
return gives
