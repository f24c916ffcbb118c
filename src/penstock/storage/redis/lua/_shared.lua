-- Helpers of most scripts: records, events, the ready order.
-- include: new_queue ordering turns run_ends

-- Helpers of jobs with a part in flows (`_flows.lua`, `_notices.lua`), and the effects that are still to be applied.
local flows, built_flows, notices, built_notices, effects

-- Records ------------------------------------------------------------------------------------------

-- The bytes of records that this call may still read and write: a long record takes longer than all else. A loop over jobs
-- handles at least one, and ends when none are left; the client sends the rest again.
local budget = MAX_BYTES
local function spend(value)
  if value then budget = budget - #value end
  return value
end

local function readable(rec)
  local format = format_of(rec)
  return format > 0 and format <= FORMAT
end

local parse, build
do -- helpers of these alone: a script has at most 200 local variables at once
  -- A job whose format is newer than this software: it is moved, counted and cancelled by its head, but never claimed, and
  -- the bytes after the head are written back unchanged.
  local function parse_newer(rec, at, j, flags, glen, llen, hlen, elen)
    if #rec < at - 1 + glen then return nil end
    if has(flags, COST) then flags = flags - COST end
    if j.flow then flags = flags - FLOW end
    if j.start_by then flags = flags - EXPIRES end
    if j.window then flags = flags - WINDOW end
    j.rest, j.flags, j.sizes = sub(rec, at), flags, { glen, llen, hlen, elen }
    j.bounds, j.headers, j.error, j.settled, j.payload = '', '', '', '', ''
    return j
  end

  local function parse_short(rec)
    local format, _, time, seq = unpack_head(SHORT_HEAD, rec)
    local j = { format = format, priority = 0, time = time, seq = seq, due = time, created = time, attempts = 0,
      retries = 0, stalls = 0, timeouts = 0, retried = false, solo = false, cost = 1, earliest = 0, bounds = '', headers = '', error = '',
      settled = '', payload = sub(rec, SHORT_SIZE + 1) }
    if format > FORMAT then j.rest, j.flags, j.sizes, j.payload = j.payload, 0, { 0, 0, 0, 0 }, '' end
    return j
  end

  -- The job of a record, or nil if the record is damaged.
  function parse(rec)
    if format_of(rec) == 0 then return nil end
    if has(byte(rec, 2), SHORT) then return parse_short(rec) end
    local j, flags, glen, llen, hlen, elen = {}
    j.format, flags, j.priority, j.time, j.seq, j.due, j.created, j.attempts, j.retries, j.stalls, j.timeouts,
      glen, llen, hlen, elen = unpack_head(HEAD, rec)
    local slen = has(flags, SETTLED) and 17 or 0
    local at = HEAD_SIZE + 1
    j.cost, j.earliest = 1, 0
    local extra = (has(flags, COST) and 4 or 0) + (has(flags, EXPIRES) and 6 or 0) + (has(flags, WINDOW) and 12 or 0)
    if #rec < HEAD_SIZE + extra then return nil end
    if has(flags, COST) then j.cost, at = unpack_head('>I4', rec, at) end
    if has(flags, EXPIRES) then j.start_by, at = unpack_head('>I6', rec, at) end
    if has(flags, WINDOW) then j.window, j.earliest, at = unpack_head('>I6I6', rec, at) end
    j.retried, j.solo, j.flow = has(flags, RETRIED), has(flags, SOLO), has(flags, FLOW)
    j.group = glen > 0 and sub(rec, at, at + glen - 1) or nil
    if j.format > FORMAT then return parse_newer(rec, at, j, flags, glen, llen, hlen, elen) end
    if #rec < at - 1 + glen + llen + hlen + elen + slen then return nil end
    at = at + glen
    j.bounds = sub(rec, at, at + llen - 1)
    at = at + llen
    j.headers = sub(rec, at, at + hlen - 1)
    at = at + hlen
    j.error = sub(rec, at, at + elen - 1)
    at = at + elen
    j.settled = sub(rec, at, at + slen - 1)
    j.payload = sub(rec, at + slen)
    return j
  end

  local function build_head(j, format, flags, glen, llen, hlen, elen)
    if glen > 65535 or llen > 65535 or hlen > 65535 or elen > 4294967295 then
      error({ err = 'ERR a job record cannot hold a group, bounds or headers of more than 65535 bytes' })
    end
    local extra = (j.start_by and EXPIRES or 0) + (j.cost > 1 and COST or 0) + (j.window and WINDOW or 0) + (j.flow and FLOW or 0)
    local attempts, retries, stalls, timeouts = j.attempts, j.retries, j.stalls, j.timeouts
    if attempts > 65535 then attempts = 65535 end
    if retries > 65535 then retries = 65535 end
    if stalls > 65535 then stalls = 65535 end
    if timeouts > 65535 then timeouts = 65535 end
    local head = pack(HEAD, format, flags + (j.retried and RETRIED or 0) + (j.solo and SOLO or 0) + extra, j.priority, j.time,
      j.seq, j.due, j.created, attempts, retries, stalls, timeouts, glen, llen, hlen, elen)
    if extra == 0 then return head end
    return head .. (j.cost > 1 and pack('>I4', j.cost) or '')
      .. (j.start_by and pack('>I6', j.start_by) or '') .. (j.window and pack('>I6I6', j.window, j.earliest) or '')
  end

  -- Whether a job is only a payload, due at the time that orders it, and has not run.
  local function is_plain(j)
    return j.time == j.due and j.time == j.created and j.priority == 0 and j.attempts == 0 and not j.group
      and not j.retried and not j.solo and not j.start_by and not j.window and not j.flow and j.cost == 1
      and j.retries + j.stalls + j.timeouts == 0 and #j.bounds + #j.headers + #j.error + #j.settled == 0
  end

  function build(j)
    if j.rest then
      return build_head(j, j.format, j.flags - j.flags % (RETRIED + SOLO + 1), unpack(j.sizes)) .. j.rest
    end
    if is_plain(j) then return pack(SHORT_HEAD, FORMAT, SHORT, j.time, j.seq) .. j.payload end
    local group = j.group or ''
    return build_head(j, FORMAT, #j.settled > 0 and SETTLED or 0, #group, #j.bounds, #j.headers, #j.error)
      .. group .. j.bounds .. j.headers .. j.error .. j.settled .. j.payload
  end
end

-- The format of a record that only newer software can read, else nil.
local function newer(rec)
  local j = rec and parse(rec)
  return j and j.rest and j.format
end

-- Whether a job may have a part in flows: its record has the flag, or cannot be read.
local function has_part(rec)
  return format_of(rec) == 0 or has(byte(rec, 2), FLOW)
end

-- include: runs windows histories

local STATES = { completed = 1, failed = 2, cancelled = 3 }
local STATE_NAMES = { 'completed', 'failed', 'cancelled' }

-- state, finished, expires, number, counted, token, value, and true for a damaged record: that of a failed job that is
-- kept for ever.
local END, END_SIZE = '>BI6I6I6BBH', 23
local function parse_end(e)
  local state, finished, expires, number, counted, tlen, wlen = 0, 0, 0, 0, 0, 0, 0
  if #e >= END_SIZE then state, finished, expires, number, counted, tlen, wlen = unpack_head(END, e) end
  if not STATE_NAMES[state] or #e < END_SIZE + tlen + wlen then return 'failed', 0, 0, 0, 0, '', '', true end
  return STATE_NAMES[state], finished, expires, number, counted, sub(e, 24, 23 + tlen), sub(e, 24 + tlen + wlen)
end

local function build_end(state, expires, number, counted, token, worker, value)
  return pack(END, STATES[state], now, expires, number, counted, #token, #worker) .. token .. worker .. value
end

local function end_member(expires, number, id)
  return pack('>I6I6', expires == 0 and FOREVER or expires, number) .. id
end

-- Keep `big` in meta up to date for a record that is stored.
local function note_length(q, rec)
  if #rec > SMALL and #rec > to_number(call('HGET', q.meta, 'big')) then call('HSET', q.meta, 'big', #rec) end
  return rec
end

local function next_seq(q) return take_seq(q, 1) end

-- The number of the next job that ends. A damaged counter continues above the numbers of the newest ends.
local function next_end(q)
  local last = add_to(q.meta, 'finished', 1)
  if last then return last end
  damaged(q, 1)
  last = call('HLEN', q.ends)
  for _, state in ipairs(STATE_NAMES) do
    local newest = call('ZREVRANGE', q[state], 0, 0)[1]
    if newest and #newest > 12 then last = math.max(last, (unpack_head('>I6', newest, 7))) end
  end
  call('HSET', q.meta, 'finished', last + 1)
  return last + 1
end

-- Hints, events and notices ------------------------------------------------------------------------

-- A job falls due then: wake a worker to set the alarm, unless one is set for that time or an earlier one.
local function wake_by(q, due)
  local alarm = to_number(call('HGET', q.meta, 'alarm'))
  if alarm <= now or due < alarm then wake(q) end
end

local function emit(name, q, id, attempt, worker, result, error)
  local to = listened and wanted(name, q.name)
  if to then add_event(to, name, q.name, id, attempt, worker, result, error) end
end

-- Notify the waiters of a job of its end, with its result or error if a state is given.
local function notify_waiters(q, id, state, value)
  local channels = call('HGET', q.waits, id)
  if channels then notify_channels(channels, q, id, state and STATES[state] or 0, state and value or '') end
end

-- The ready order and the lanes --------------------------------------------------------------------

local function lane_member(j, id) return lane_prefix(j.group) .. pack('>I6I6', j.time, j.seq) .. id end
local function due_member(j, id) return pack('>I6I6', j.due, j.seq) .. id end
local function expiry_member(j, id) return pack('>I6I6', j.start_by, j.seq) .. id end
local function backoff_member(j, id) return lane_prefix(j.group) .. due_member(j, id) end

-- A job that only newer software can run is parked: its member of ready goes, after its format, to `parked`, so that no
-- claim finds it again. A group is parked if the head of its lane is. `parked` in meta is the lowest format among them.
local function park(q, format, member, group)
  local parked = string.char(format) .. member
  call('ZADD', q.parked, 0, parked)
  if group then call('HSET', q.turns, group, parked) end
  local lowest = to_number(call('HGET', q.meta, 'parked'), 256)
  if format < lowest then call('HSET', q.meta, 'parked', format) end
end

-- Set `parked` in meta after members of `parked` have gone.
local function reset_parked(q)
  local first = call('ZRANGE', q.parked, 0, 0)[1]
  if first then
    call('HSET', q.meta, 'parked', byte(first, 1) or 0)
  else
    call('HDEL', q.meta, 'parked')
  end
end

-- Move jobs of a known format back to ready; true when there may be more.
local function unpark(q)
  if to_number(call('HGET', q.meta, 'parked') or 256) > FORMAT then return false end
  local members = call('ZRANGEBYLEX', q.parked, '-', '(' .. string.char(FORMAT + 1), 'LIMIT', 0, PROMOTE)
  for _, parked in ipairs(members) do
    local member = sub(parked, 2)
    call('ZREM', q.parked, parked)
    call('ZADD', q.ready, 0, member)
    if byte(member, 17) == 103 then call('HSET', q.turns, sub(member, 18), member) end
  end
  if #members > 0 then wake(q) end
  if #members == PROMOTE then return true end
  reset_parked(q)
  return false
end

-- The turn of a group, or nil. A parked turn moves back to ready, so that the next claim looks at the head again. A
-- damaged one is removed: the group gets a new turn, and a claim drops its old member of ready.
local function turn_of(q, group)
  local current = call('HGET', q.turns, group)
  if not current then return nil end
  if is_turn(current, group) then return member_of(current, group) end
  if #current ~= 18 + #group or not is_turn(sub(current, 2), group) then
    call('HDEL', q.turns, group)
    damaged(q, 1)
    return nil
  end
  local member = sub(current, 2)
  call('ZREM', q.parked, current)
  call('ZADD', q.ready, 0, member)
  call('HSET', q.turns, group, member)
  wake(q)
  return member
end

-- Remove the head from a turn, because the lane may begin with another job now.
local function forget_head(q, group)
  local turn = call('HGET', q.turns, group)
  if known_head(turn, group) then call('HSET', q.turns, group, member_of(turn, group)) end
end

-- include: gates
-- Put a group into the rotation, or take it out: it belongs there if, and only if, it has jobs and no hold. A group that
-- comes in takes the turn given, or else the end of the rotation.
local function regroup(q, group, turn)
  if not group then return end
  if limited_by(q) > 0 then return gates().look_at(q, group, turn) end
  local current = turn_of(q, group)
  local held = to_number(call('HGET', q.holds, group) or 0, false) or recount_holds(q, group)
  if held > 0 or #lane_head(q, group, '1') == 0 then
    if current then
      call('ZREM', q.ready, current)
      call('HDEL', q.turns, group)
    end
  elseif not current then
    local member = (turn or rank(0, now, next_seq(q))) .. 'g' .. group
    call('ZADD', q.ready, 0, member)
    call('HSET', q.turns, group, member)
    wake(q)
  end
end

-- Change the number of jobs that hold a group, before the run or the backoff begins or ends.
local function hold(q, group, by)
  if not group then return end
  local count = add_to(q.holds, group, by)
  if not count then
    count = recount_holds(q, group) + by
    call('HSET', q.holds, group, count)
  end
  if count <= 0 then call('HDEL', q.holds, group) end
end

-- A job with a group that waits for its next attempt holds the group, and can be found by it.
local function begin_backoff(q, id, j)
  if not j.group then return end
  hold(q, j.group, 1)
  call('ZADD', q.backoffs, 0, backoff_member(j, id))
  q.has_backoffs = true
end
local function end_backoff(q, id, j)
  if not j.group then return end
  hold(q, j.group, -1)
  call('ZREM', q.backoffs, backoff_member(j, id))
end

-- A job is queued when it is due, and stays queued if the clock is set back.
local function waiting_state(q, id, j)
  local state = j.flow and flows().waiting_state(q, id)
  if state then return state end
  if j.due > now then
    if call('ZSCORE', q.scheduled, due_member(j, id)) then return 'scheduled' end
    if call('ZSCORE', q.retrying, due_member(j, id)) then return 'retrying' end
  end
  return 'queued'
end

-- include: start_by
-- Add a job to the ready order, to its lane, or to `scheduled` or `retrying` if it is not due.
local function enter(q, id, j)
  if j.due > now then
    call('ZADD', j.retried and q.retrying or q.scheduled, 0, due_member(j, id))
    if j.retried then begin_backoff(q, id, j) end
    wake_by(q, j.due)
  elseif j.group then
    call('ZADD', q.lanes, 0, lane_member(j, id))
    forget_head(q, j.group)
  else
    call('ZADD', q.ready, 0, rank(j.priority, j.time, j.seq) .. 'j' .. id)
    wake(q)
  end
end

-- Remove a waiting job from the order that it is in.
local function leave(q, id, j)
  drop_expiry(q, id, j)
  if j.flow and flows().leave(q, id, j) then return end
  if call('ZREM', q.scheduled, due_member(j, id)) == 1 then return end
  if call('ZREM', q.retrying, due_member(j, id)) == 1 then return end_backoff(q, id, j) end
  j.retried = false -- its backoff is over, and stays so if the clock is set back
  if j.group then
    call('ZREM', q.lanes, lane_member(j, id))
    forget_head(q, j.group)
  else
    local member = rank(j.priority, j.time, j.seq) .. 'j' .. id
    if call('ZREM', q.ready, member) == 0 then call('ZREM', q.parked, string.char(j.format) .. member) end
  end
end

-- Whether a job runs, has ended, or is in the order by an entry that fits its record.
local function is_placed(q, id, j)
  if call('HEXISTS', q.runs, id) == 1 or call('HEXISTS', q.ends, id) == 1 then return true end
  local line = j and (call('ZSCORE', q.scheduled, due_member(j, id)) or call('ZSCORE', q.retrying, due_member(j, id)))
  if line or not j then return line end
  if j.flow and flows().is_suspended(q, id) then return true end
  if j.group then return call('ZSCORE', q.lanes, lane_member(j, id)) end
  local member = rank(j.priority, j.time, j.seq) .. 'j' .. id
  return call('ZSCORE', q.ready, member) or call('ZSCORE', q.parked, string.char(j.format) .. member)
end

-- include: promotion flows
