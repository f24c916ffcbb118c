-- Helpers of all scripts for a queue.

-- A queue is a table of its keys, each built when it is first used.
local KEY_NAMES = { __index = function(q, key)
  local name = q.prefix .. key
  q[key] = name
  return name
end }
local function queue_at(prefix, name)
  return setmetatable({ prefix = prefix, name = name }, KEY_NAMES)
end

-- Another queue that a script changes, each by one table: that remembers what the script has read of it.
local function other_queue(q, prefix, name)
  if prefix == q.prefix then return q end
  local known = rawget(q, 'others')
  if not known then
    known = { [q.prefix] = q }
    q.others = known
  end
  local other = known[prefix] or queue_at(prefix, name)
  known[prefix], other.others = other, known
  return other
end

-- A stored number: a whole one from 0 to 2^48 - 1, as Penstock writes it. Anything else gives `otherwise` (0).
local function to_number(text, otherwise)
  local n = tonumber(text)
  if n and n >= 0 and n <= FOREVER and n == floor(n) then return n end
  if otherwise == nil then return 0 end
  return otherwise
end

-- Count records that cannot be read, and that this script sets aside or repairs.
local function damaged(q, count)
  local counted = redis.pcall('HINCRBY', q.meta, 'damaged', count)
  if type(counted) ~= 'number' or counted < 0 then call('HSET', q.meta, 'damaged', count) end
end

-- Add to a counter in a hash, and give its new value; nil if it is damaged: then the caller sets it.
local function add_to(key, name, by)
  local n = redis.pcall('HINCRBY', key, name, by)
  if type(n) == 'number' and n >= 0 and n <= FOREVER then return n end
end

local function has(flags, bit) return floor(flags / bit) % 2 == 1 end

-- The format of a record, or 0 if it is too short for its head.
local function format_of(rec)
  if not rec or #rec < SHORT_SIZE then return 0 end
  return (#rec >= HEAD_SIZE or has(byte(rec, 2), SHORT)) and byte(rec, 1) or 0
end

-- The runs so far in a record whose format is not 0, at most as many as an event can name before the next.
local function attempts_of(rec)
  return has(byte(rec, 2), SHORT) and 0 or math.min(unpack_head('>H', rec, 31), 65534)
end

-- Wake one idle worker: the wake list has at most one element. That worker's claim wakes the next if there is more.
local function wake(q)
  if call('LLEN', q.wake) == 0 then
    call('LPUSH', q.wake, '1')
    call('PEXPIRE', q.wake, WAKE_MS)
  end
end
