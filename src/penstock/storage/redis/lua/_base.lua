-- In front of every script. What most calls need stands here; the rest, in `_shared.lua` and `_moves.lua`,
-- comes where a script has its `include` line, so that a call that is answered before does not pay for it.
-- The keys are in keys.py, the records here.
--
-- ARGV 1 is the clock in ms (empty: the server's own), 2 the key prefix of the queue, 3 its name.
-- KEYS 1 is `ears` (who listens to events), 2 is `names` (the queues there are); on a Cluster the
-- queue's other keys follow, declared so that the server can refuse a slot that is on the move.
--
-- job record:  head, then group, limits, headers, error, settled (17 bytes or none), payload; the head and
--              the group mean the same in every format, what follows them is the format's own. A job that
--              is nothing but a payload has a short head: its time, by which it is also due, and its number
-- run record:  token (16), then, unless plain: cancel, successor, ttl + 1, group, has progress, progress
-- end record:  state, finished, expires (0: never), number, counted, token (16 or none), worker, value
-- rank:        2^31-1 - priority, time, sequence: their bytes sort as the jobs run
local call, pack, unpack_head = redis.call, struct.pack, struct.unpack
local sub, byte, floor = string.sub, string.byte, math.floor

local FORMAT = 1
local HEAD, HEAD_SIZE = '>BBi4I6I6I6I6HHHHHHHI4', 48
local SHORT_HEAD, SHORT_SIZE = '>BBI6I6', 14
local RETRIED, SOLO, SETTLED, SHORT = 1, 2, 4, 8
local FOREVER = 281474976710655
local COUNT_ATTEMPT, COUNT_TIMEOUT, COUNT_STALL = 1, 2, 4
local FREE = 8 -- beside what is counted: kept for its waiters only, the id is not taken
local CANCEL = { refuse = 0, forget = 1, signal = 2, kill = 3 }
local GONE_MS = 60000
local WAITED_MS = 60000 -- how long a job that is not kept stays for those who wait for it
local FAILED_MS = 604800000 -- how long a job with a damaged record is kept
local PROMOTE = 1000
local WAKE_MS = 60000
local TOLD = 8192 -- the longest result or error that waiters are told with the end

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end
local ears = call('GET', KEYS[1])

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

-- Some runs of a token are over; with the last one its lease goes.
local function let_go(q, token, count)
  if call('HINCRBY', q.batches, 'n' .. token, -count) <= 0 then
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
