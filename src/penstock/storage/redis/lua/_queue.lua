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
  while at <= #channels do
    local size = unpack_head('>H', channels, at)
    call('PUBLISH', sub(channels, at + 2, at + 1 + size), notice)
    at = at + 2 + size
  end
  call('HDEL', q.waits, id)
end

-- Count down the runs of a token, and remove its lease with the last. `held` is their number before, if known.
local function end_runs(q, token, count, held)
  if held and held <= count or call('HINCRBY', q.batches, 'n' .. token, -count) <= 0 then
    local parted = call('HDEL', q.batches, 'n' .. token, 'b' .. token, 'w' .. token, 'p' .. token) > 3
    call('ZREM', q.leases, token, '!' .. token)
    local part = token .. '~1'
    while parted and call('HDEL', q.batches, 'b' .. part) == 1 do
      call('ZREM', q.leases, part)
      part = token .. '~' .. tonumber(sub(part, 18)) + 1
    end
  end
end

local blobs = 5 -- the first bytes are the next argument
