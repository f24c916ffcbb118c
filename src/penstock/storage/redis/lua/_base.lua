-- In front of every script. `_queue.lua` follows at once, unless a script has an `include` line for it further
-- down; the rest, in `_shared.lua` and `_transitions.lua`, comes where a script has its `include` line. So a call
-- that is answered before does not pay for it.
-- The keys are in keys.py, the records here.
--
-- ARGV 1 is the clock in ms (empty: the server's own), 2 the key prefix of the queue, 3 its name.
-- KEYS 1 is `ears` (who listens to events), 2 is `names` (the queues there are); on a Cluster the
-- queue's other keys follow, declared so that the server can refuse a slot that is on the move.
--
-- job record:  head, then group, limits, headers, error, settled (17 bytes or none), payload; the head and
--              the group mean the same in every format, what follows them is the format's own. A job that
--              is nothing but a payload has a short head: its time, by which it is also due, and its number
-- run record:  token (16), then, unless plain: cancel, successor, ttl + 1, group, has progress, progress (else anything)
-- end record:  state, finished, expires (0: never), number, counted, token (16 or none), worker, value
-- rank:        2^31-1 - priority, time, sequence: their bytes sort as the jobs run
local call, pack, unpack_head = redis.call, struct.pack, struct.unpack
local sub, byte, floor = string.sub, string.byte, math.floor

local FORMAT = 1
local HEAD, HEAD_SIZE = '>BBi4I6I6I6I6HHHHHHHI4', 48
local SHORT_HEAD, SHORT_SIZE = '>BBI6I6', 14
local RETRIED, SOLO, SETTLED, SHORT = 1, 2, 4, 8
local PLAIN_RANK = '\127\255\255\255' -- how the rank of a job without priority begins
local FOREVER = 281474976710655
local COUNT_ATTEMPT, COUNT_TIMEOUT, COUNT_STALL = 1, 2, 4
local FREE = 8 -- beside what is counted: kept for its waiters only, the id is not taken
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
