-- Helpers of all scripts for a queue and its runs.
local CANCEL = { refuse = 0, forget = 1, signal = 2, kill = 3 }

-- A queue is a table of its keys, each built when it is first used.
local KEY_NAMES = { __index = function(q, key)
  local name = q.prefix .. key
  q[key] = name
  return name
end }
local function queue_at(prefix, name)
  return setmetatable({ prefix = prefix, name = name }, KEY_NAMES)
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

-- Wake one idle worker: the wake list has at most one element. That worker's claim wakes the next if there is more.
local function wake(q)
  if call('LLEN', q.wake) == 0 then
    call('LPUSH', q.wake, '1')
    call('PEXPIRE', q.wake, WAKE_MS)
  end
end

-- Publish the end of a job on these channels, with its result or error if that is short; else the state is 0 and the
-- client must read the job.
local function notify_channels(channels, q, id, state, value)
  if #value > MAX_NOTICE then state, value = 0, '' end
  local notice, at = pack('>HHB', #q.name, #id, state) .. q.name .. id .. value, 1
  while at < #channels do -- a damaged list may end in the middle of a size
    local size = unpack_head('>H', channels, at)
    call('PUBLISH', sub(channels, at + 2, at + 1 + size), notice)
    at = at + 2 + size
  end
  call('HDEL', q.waits, id)
end

-- Call a function with the id and the record of each run. There are no more than the workers hold; still, this is only
-- for repairs.
local function each_run(q, visit)
  local ids = call('HKEYS', q.runs)
  for at = 1, #ids, 1000 do
    for i, run in ipairs(call('HMGET', q.runs, unpack(ids, at, math.min(at + 999, #ids)))) do
      visit(ids[at + i - 1], run)
    end
  end
end

-- The ids of the runs of a token.
local function find_runs(q, token)
  local ids = {}
  each_run(q, function(id, run) if sub(run, 1, 16) == token then ids[#ids + 1] = id end end)
  return ids
end

-- Count the runs of a token, and store the number, which was damaged.
local function recount_runs(q, token)
  local left = #find_runs(q, token)
  damaged(q, 1)
  if left > 0 then call('HSET', q.batches, 'n' .. token, left) end
  return left
end

-- Count down the runs of a token, after they were removed, and remove its lease with the last. `held` is their number
-- before, if known.
local function end_runs(q, token, count, held)
  if held and held <= count or (add_to(q.batches, 'n' .. token, -count) or recount_runs(q, token)) <= 0 then
    local parted = call('HDEL', q.batches, 'n' .. token, 'b' .. token, 'w' .. token, 'p' .. token) > 3
    call('ZREM', q.leases, token)
    local part = token .. '~1'
    while parted and call('HDEL', q.batches, 'b' .. part) == 1 do
      call('ZREM', q.leases, part)
      part = token .. '~' .. tonumber(sub(part, 18)) + 1
    end
  end
end

local blobs = 5 -- the first bytes are the next argument
