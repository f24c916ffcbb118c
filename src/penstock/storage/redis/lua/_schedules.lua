-- Schedules: their records, and the entries of `ticks` by which they are found.
--
-- schedule record: format, version, cursor, next tick, nominal time of the last tick, expiry (these three + 1, 0 for
--                  none), numbers of ticks that fired, were skipped, missed and dropped, length of the last id; then
--                  the id of the last job and the spec, which is opaque
-- A record that cannot be read is listed by nothing; its name is free, and `purge` deletes it after a while.
local LIST_TICKS, LIST_EXPIRIES, LIST_NAMES = 't', 'e', 'n' -- the first byte of the entries of each list

local parse_schedule, build_schedule
do -- helpers of these alone: a script has at most 200 local variables at once
  local SCHEDULE, SCHEDULE_SIZE, SCHEDULE_FORMAT = '>BI6I6I6I6I6I6I6I6I6H', 57, 1

  function parse_schedule(rec)
    if not rec or #rec < SCHEDULE_SIZE or byte(rec, 1) ~= SCHEDULE_FORMAT then return nil end
    local s, next, last_at, expires, size, _ = {}
    _, s.version, s.cursor, next, last_at, expires, s.fired, s.skipped, s.missed, s.dropped, size = unpack_head(SCHEDULE, rec)
    if s.version == 0 or #rec < SCHEDULE_SIZE + size then return nil end
    s.next, s.last_at = next > 0 and next - 1 or nil, last_at > 0 and last_at - 1 or nil
    s.expires = expires > 0 and expires - 1 or nil
    s.last_id, s.spec = size > 0 and sub(rec, SCHEDULE_SIZE + 1, SCHEDULE_SIZE + size) or nil, sub(rec, SCHEDULE_SIZE + size + 1)
    return s
  end

  local function up(n) return n and n + 1 or 0 end
  local function capped(n) return math.min(n, FOREVER) end

  function build_schedule(s)
    local id = s.last_id or ''
    return pack(SCHEDULE, SCHEDULE_FORMAT, s.version, s.cursor, up(s.next), up(s.last_at), up(s.expires), capped(s.fired),
      capped(s.skipped), capped(s.missed), capped(s.dropped), #id) .. id .. s.spec
  end
end

local function timed_entry(list, at, name) return list .. pack('>I6', at) .. name end

local function is_live(s) return s and (not s.expires or s.expires > now) end

-- The schedule of this name, or nil if there is none, it has expired or cannot be read; and the times by which the record
-- that there is can be found, if it can be read.
local function find_schedule(q, name)
  local s = parse_schedule(spend(call('HGET', q.schedules, name)))
  return is_live(s) and s or nil, s and { next = s.next, expires = s.expires }
end

-- Add the entries of a schedule; gives how many were missing.
local function list_schedule(q, name, s)
  local entries = { 0, LIST_NAMES .. name }
  if s.next then entries[3], entries[4] = 0, timed_entry(LIST_TICKS, s.next, name) end
  if s.expires then entries[#entries + 1], entries[#entries + 2] = 0, timed_entry(LIST_EXPIRIES, s.expires, name) end
  return call('ZADD', q.ticks, unpack(entries))
end

-- Remove the entries of a schedule.
local function unlist_schedule(q, name, s)
  local entries = { LIST_NAMES .. name }
  if s.next then entries[2] = timed_entry(LIST_TICKS, s.next, name) end
  if s.expires then entries[#entries + 1] = timed_entry(LIST_EXPIRIES, s.expires, name) end
  call('ZREM', q.ticks, unpack(entries))
end

-- Store a schedule in place of the record with these times. `reset_tick` follows the last change of a script.
local function store_schedule(q, name, s, old)
  if old then unlist_schedule(q, name, old) end
  call('HSET', q.schedules, name, build_schedule(s))
  list_schedule(q, name, s)
end

local function forget_schedule(q, name, s)
  unlist_schedule(q, name, s)
  call('HDEL', q.schedules, name)
end

-- Set `tick` in meta, the earliest next tick, after the entries of `ticks` have changed.
local function reset_tick(q)
  local first = call('ZRANGEBYLEX', q.ticks, '[' .. LIST_TICKS, '(u', 'LIMIT', '0', '1')[1]
  while first and #first < 8 do
    call('ZREM', q.ticks, first)
    damaged(q, 1)
    first = call('ZRANGEBYLEX', q.ticks, '[' .. LIST_TICKS, '(u', 'LIMIT', '0', '1')[1]
  end
  if first then
    call('HSET', q.meta, 'tick', (unpack_head('>I6', first, 2)))
  else
    call('HDEL', q.meta, 'tick')
  end
end

local function next_version(version) return math.max(version + 1, now) end

-- Remove an entry that does not fit the record of its schedule. A record that cannot be read gets an expiry; one that can
-- gets its own entries again.
local function repair_entry(q, entry, name, rec, s)
  call('ZREM', q.ticks, entry)
  damaged(q, 1)
  if s then
    list_schedule(q, name, s)
  elseif rec then
    call('ZADD', q.ticks, 0, timed_entry(LIST_EXPIRIES, now + FAILED_MS, name))
  end
end
