-- What all scripts know of a queue and its runs.
local CANCEL = { refuse = 0, forget = 1, signal = 2, kill = 3 }

-- A queue is a table that spells its keys when they are asked for.
local KEY_NAMES = { __index = function(q, key)
  local spelled = q.prefix .. key
  q[key] = spelled
  return spelled
end }
local function queue_at(prefix, name)
  return setmetatable({ prefix = prefix, name = name }, KEY_NAMES)
end

local function has(flags, bit) return floor(flags / bit) % 2 == 1 end

-- The format of a record that is long enough for its head, else 0.
local function format_of(rec)
  if not rec or #rec < SHORT_SIZE then return 0 end
  return (#rec >= HEAD_SIZE or has(byte(rec, 2), SHORT)) and byte(rec, 1) or 0
end

-- One token at most lies in the wake list: it wakes one idle worker, whose claim passes it on.
local function wake(q)
  if call('LLEN', q.wake) == 0 then
    call('LPUSH', q.wake, '1')
    call('PEXPIRE', q.wake, WAKE_MS)
  end
end

-- Tell those who listen on these channels that a job has ended, and how if that is short; state 0: look yourself.
local function tell_on(channels, q, id, state, value)
  if #value > TOLD then state, value = 0, '' end
  local word, at = pack('>HHB', #q.name, #id, state) .. q.name .. id .. value, 1
  while at <= #channels do
    local size = unpack_head('>H', channels, at)
    call('PUBLISH', sub(channels, at + 2, at + 1 + size), word)
    at = at + 2 + size
  end
  call('HDEL', q.waits, id)
end

-- Some runs of a token are over; with the last one its lease goes. `held` is how many there were, if that is known.
local function let_go(q, token, count, held)
  if held and held <= count or call('HINCRBY', q.batches, 'n' .. token, -count) <= 0 then
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
