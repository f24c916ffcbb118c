-- settle: running -> completed / retrying / failed / cancelled / queued, fenced by the token
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs leases batches completed failed cancelled gone meta waits wake
-- args: 'completed', {{token, ttl (-1: for ever), count}, ...} (msgpack), then id, result, ...: completions that
--       are kept and put no jobs, all of different ids
--       'any', settlements (msgpack: a list of {id, token, kind, ...}, see below), blobs...
-- gives: 1 (all completed) or a list of 1 (completed), 0 (lost) or the name of the state
--
-- kinds: c complete {ttl (-1: for ever), result, then}   f fail {ttl, error, counts a timeout, then}
--        r retried {at or false, delay, count, place due, solo, error}   x cancel {ttl}
--        l release {}   s stall {}
-- `then` is a list of {queue prefix, queue name, asked-for job}.
local q = queue_at(ARGV[2], ARGV[3])
local form, given = ARGV[4], cmsgpack.unpack(ARGV[5])

-- include: ordering

-- The ids of plain runs of these tokens, with nothing behind them, the groups of those in lanes, and the channels of
-- who waits for them; nil if some are not plain, or if others are due, who take their turns before these groups do.
local function plain_runs()
  local ids, groups, at = {}, {}, 0
  for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  local held = call('HMGET', q.runs, unpack(ids))
  for _, part in ipairs(given) do
    local token = part[1]
    for i = at + 1, at + part[3] do
      local run = held[i]
      if run ~= token then
        local group = run and lane_of(run, token)
        if not group then return nil end
        if group ~= '' then groups[#groups + 1] = group end
      end
    end
    at = at + part[3]
  end
  if #groups > 0 and (next_due(q) or FOREVER) <= now then return nil end
  local told = #ids == 1 or call('EXISTS', q.waits) == 1
  return ids, groups, told and call('HMGET', q.waits, unpack(ids)) or {}
end

-- Most runs simply complete: they are written together.
local over, groups, waiting
if form == 'completed' and not ears then over, groups, waiting = plain_runs() end
if over then
  local number, at, ends, done = call('HINCRBY', q.meta, 'finished', #over) - #over, 6, {}, {}
  for _, part in ipairs(given) do
    local token, ttl, count = part[1], part[2], part[3]
    local batch = call('HMGET', q.batches, 'w' .. token, 'n' .. token)
    local worker, expires = batch[1] or '', ttl > 0 and now + ttl or 0
    local before = pack('>BI6I6', 1, now, expires)
    local after = pack('>BBH', COUNT_ATTEMPT, #token, #worker) .. token .. worker
    local line = pack('>I6', expires == 0 and FOREVER or expires)
    for i = at, at + 2 * count - 2, 2 do
      number = number + 1
      local id, place_in_line = ARGV[i], pack('>I6', number)
      ends[i - 5], ends[i - 4] = id, before .. place_in_line .. after .. ARGV[i + 1]
      done[i - 5], done[i - 4] = '0', line .. place_in_line .. id
    end
    at = at + 2 * count
    let_go(q, token, count, tonumber(batch[2]))
  end
  call('HDEL', q.runs, unpack(over))
  call('HSET', q.ends, unpack(ends))
  call('ZADD', q.completed, unpack(done))
  if #groups > 0 then free_groups(q, groups) end
  for i, channels in ipairs(waiting) do
    if channels then tell_on(channels, q, over[i], 1, ARGV[5 + 2 * i]) end
  end
  return 1
end

-- include: shared transitions
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

-- Ids whose runs this call has touched: what was read about them before is no longer true.
local seen = {}

local function put_all(jobs)
  for _, new in ipairs(jobs or {}) do
    if new[2] == q.name then seen[new[3][1]] = true end
    put_one(queue_at(new[1], new[2]), read_entry(new[3]))
  end
end

local POSSIBLE = { c = { completed = true }, f = { failed = true, cancelled = true } }
local ONLY_CANCELLED = { cancelled = true }

-- The same settlement again is answered as before; anything else has lost its claim.
local function settled_before(s)
  local id, token, kind = s[1], s[2], s[3]
  local possible = POSSIBLE[kind] or ONLY_CANCELLED
  for code, state in ipairs(STATE_NAMES) do
    local expires = call('ZSCORE', q.gone, token .. string.char(code) .. id)
    if expires and tonumber(expires) > now and possible[state] then return state end
  end
  local ended = call('HGET', q.ends, id)
  if ended then
    local state, _, expires, _, _, by = parse_end(ended)
    if by == token and (expires == 0 or expires > now) and possible[state] then return state end
    return 0
  end
  if call('HEXISTS', q.runs, id) == 1 then return 0 end
  local j = parse(call('HGET', q.jobs, id))
  if j and j.settled == token .. kind then return waiting_state(q, id, j) end
  return 0
end

local function finish_run(id, run, j, state, ttl, value, counted)
  drop_run(q, id, run)
  finish(q, id, { state = state, token = run.token, worker = run.worker, ttl = ttl, value = value,
    counted = COUNT_ATTEMPT + counted, group = run.group, successor = run.successor, attempt = j.attempts + 1 })
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
  if s[6] == 'timeouts' then
    j.timeouts = j.timeouts + 1
    note('timed_out', q, id, j.attempts, run.worker)
  elseif s[6] == 'retries' then
    j.retries = j.retries + 1
  end
  j.due = s[4] or now + s[5]
  if s[7] and not j.group then
    j.time, j.seq = math.max(j.due, now), next_seq(q)
  end
  j.solo, j.error = s[8], blob(s[9])
  return give_back_run(id, run, j, 'r', 'retrying')
end

local function settle_one(s)
  local id, token, kind = s[1], s[2], s[3]
  promote(q)
  local held = call('HGET', q.runs, id)
  if not held or sub(held, 1, 16) ~= token then return settled_before(s) end
  local run = parse_run(held)
  run.worker = call('HGET', q.batches, 'w' .. token) or ''
  local j = parse(call('HGET', q.jobs, id))
  if not j then -- its record was damaged while it ran: it ends here, the bytes are kept
    return finish_run(id, run, { attempts = 0 }, 'failed', FAILED_MS, kind == 'f' and blob(s[5]) or '', 0)
  end
  if kind == 'c' then
    finish_run(id, run, j, 'completed', ttl_of(s[4]), blob(s[5]), 0)
    put_all(s[6])
    return 'completed'
  elseif run.cancel > 0 then
    return finish_run(id, run, j, 'cancelled', run.ttl, '', 0)
  elseif kind == 'f' then
    if s[6] then note('timed_out', q, id, j.attempts + 1, run.worker) end
    finish_run(id, run, j, 'failed', ttl_of(s[4]), blob(s[5]), s[6] and COUNT_TIMEOUT or 0)
    put_all(s[7])
    return 'failed'
  elseif kind == 'x' then
    return finish_run(id, run, j, 'cancelled', ttl_of(s[4]), '', 0)
  elseif kind == 'l' then
    j.due = now
    return give_back_run(id, run, j, 'l', 'released')
  elseif kind == 's' then
    j.attempts, j.stalls, j.solo, j.due = j.attempts + 1, j.stalls + 1, true, now
    return give_back_run(id, run, j, 's', 'stalled')
  end
  return retry(id, run, j, s)
end

-- A run that completes, is kept, and has nobody to tell and nothing behind it: most are, so they are
-- written together.
local plain = not ears and call('EXISTS', q.waits) == 0
local asked = {}
for i, s in ipairs(settlements) do asked[i] = s[1] end
local held = call('HMGET', q.runs, unpack(asked))
local ends, done, per_token = {}, {}, {}
over = {}
local freed = {} -- groups, one for each run of theirs
local number = tonumber(call('HGET', q.meta, 'finished') or 0)

local function flush()
  if #over == 0 then return end
  call('HDEL', q.runs, unpack(over))
  call('HSET', q.ends, unpack(ends))
  call('ZADD', q.completed, unpack(done))
  call('HSET', q.meta, 'finished', number)
  for token, count in pairs(per_token) do let_go(q, token, count.n) end
  if #freed > 0 then free_groups(q, freed) end
  ends, done, over, per_token, freed = {}, {}, {}, {}, {}
end

local function complete_plain(s, group)
  local id, token, ttl = s[1], s[2], s[4]
  seen[id] = true
  local count = per_token[token]
  if not count then
    count = { n = 0, worker = call('HGET', q.batches, 'w' .. token) or '' }
    per_token[token] = count
  end
  count.n = count.n + 1
  number = number + 1
  local expires = ttl > 0 and now + ttl or 0
  over[#over + 1] = id
  ends[#ends + 1] = id
  ends[#ends + 1] = build_end('completed', expires, number, COUNT_ATTEMPT, token, count.worker, blob(s[5]))
  done[#done + 1] = 0
  done[#done + 1] = end_member(expires, number, id)
  if group then
    promote(q)
    freed[#freed + 1] = group
  end
  return 1
end

-- The group of a run that may simply be completed, false for one without a group; nil for any other.
local function simple(s, run)
  if not plain or s[3] ~= 'c' or s[4] == 0 or s[6] or seen[s[1]] or not run then return nil end
  if run == s[2] then return false end
  local parsed = parse_run(run)
  if parsed.token == s[2] and parsed.cancel == 0 and not parsed.successor then return parsed.group or false end
end

for i, s in ipairs(settlements) do
  local group = simple(s, held[i])
  if group ~= nil then
    gives[i] = complete_plain(s, group)
  else
    flush()
    seen[s[1]] = true
    gives[i] = settle_one(s)
    number = tonumber(call('HGET', q.meta, 'finished') or 0)
  end
end
flush()
return gives
