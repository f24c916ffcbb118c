-- The first part of every script, after the line with its flags (scripts.py). `_queue.lua` follows, unless the script
-- has an `include` line for it further down. The other files come where a script has an `include` line for them, so that
-- a call that is answered before that line does not run their definitions.
-- The keys are described in keys.py, the records here.
--
-- ARGV 1 is the clock in ms (empty: the server's own), 2 the key prefix of the queue, 3 its name.
-- KEYS 1 is `listeners` (who listens to events), 2 is `names` (the names of the queues); on a Cluster the
-- queue's other keys follow, declared so that the server can refuse a slot that is being moved.
--
-- job record:  head, cost (4 bytes; none for 1), start-by time (6 bytes or none), window and the earliest time to which
--              updates may move the job (6 bytes each, or none), then group, bounds, headers, error, settled (17 bytes
--              or none), payload; all up to the group means the same in every format, the rest may differ. A plain job,
--              which is only a payload, has a short head: its time, at which it is also due, and its sequence number
-- run record:  token (16), then, unless all are absent: cancel, successor + 2 * limited + 4 * flow, ttl + 1, group, has progress,
--              progress (or padding)
-- end record:  state, finished, expires (0: never), number, counted, token (16 or none), the time of the claim (6) and
--              the worker or none, value
-- Other software can write to the server, so any record may be damaged. Scripts read and check before they write, and
-- continue without records that they cannot read; `damaged` in meta counts these.
-- rank:        2^31-1 - priority, time, sequence: their bytes sort as the jobs run
local call, pack, unpack_head = redis.call, struct.pack, struct.unpack
local sub, byte, floor = string.sub, string.byte, math.floor

local FORMAT = 1
local FAST = true
local HEAD, HEAD_SIZE = '>BBi4I6I6I6I6HHHHHHHI4', 48
local SHORT_HEAD, SHORT_SIZE = '>BBI6I6', 14
local RETRIED, SOLO, SETTLED, SHORT, EXPIRES, COST, WINDOW, FLOW = 1, 2, 4, 8, 16, 32, 64, 128
local PLAIN_RANK = '\127\255\255\255' -- the first bytes of the rank of a job without priority
local FOREVER = 281474976710655
local COUNT_ATTEMPT, COUNT_TIMEOUT, COUNT_STALL = 1, 2, 4
local FREE = 8 -- a flag next to these counts: the job is kept for its waiters only, and its id is free
local GONE_MS = 60000
local WAITED_MS = 60000 -- retention for waiters of a job that is otherwise not kept
local FAILED_MS = 604800000 -- retention of a job with a damaged record
local EXPIRED_MS = 3600000 -- retention of a job that expired
local EXPIRED = ''
local PROMOTE = 1000
local MAX_BATCH = 1000 -- jobs that one call claims at most
local MAX_BYTES = 4000000 -- a call stops at the record that brings those it has read to this many bytes
local SMALL = 4000 -- `big` in meta is at least the length of the longest record of a queue, if one is longer than this
local LONG_AGO = 4503599627370496 -- subtracted from the time of a claim: the score of its second member in `leases`
local WAKE_MS = 60000
local MAX_NOTICE = 8192 -- the longest result or error in an end notice
local MAX_WAITERS = 100 -- clients that are notified of the end of one job
local SECRET_SIZE = 32
local READER = '\0r' -- after an id in `waits`: readers of its histories
local LIMITED, FLOW_RUN = 2, 4 -- flags in a run record, next to that of a successor
local BLOCKED_PART = '\0b' -- after an id in `generations` and `notices`: the part of its blocked successor
local KIND_SLEEP, KIND_SIGNAL, KIND_CURSOR, ON_ENDED = 2, 3, 5, 2 -- kinds of checkpoints and the mode of a notice, see flow_codec.py
local FOLLOW_UPS, MAX_EFFECTS, MAX_SIGNALS, JOURNAL_BYTES, JOURNAL_ENTRIES = 1073741824, 1000, 1000, 16384, 1000 -- as in model/flow.py
local HARM = 1099511627776 -- how a dependency harms is multiplied by it in `harm`
local GROUP_RUN, LIMITED_RUN = '\0\0\0\0\0\0\0\1', '\0\2\0\0\0\0\0\1' -- of a plain run with a group; of one of a limited queue
local OWN, FAMILY, SINGLE = 1, 2, 4 -- `limited` in meta: the queue has limits; its family has one; single groups have some

local now
if ARGV[1] ~= '' then
  now = tonumber(ARGV[1])
else
  local t = call('TIME')
  now = t[1] * 1000 + floor(t[2] / 1000)
end

-- A message with its seal in front, which only those can make who know the secret: it is in no message. event_codec.py
-- has the same.
local function seal(message, secret)
  return redis.sha1hex(secret .. redis.sha1hex(secret .. message)) .. message
end

-- The listeners to the events of all queues, behind their secret, and those to the events of this queue. A key of another
-- type has none, and stops no job. `listened`: whether any queue has a listener; only then the others are there.
local marks = redis.pcall('HMGET', KEYS[1], '', ARGV[3])
local listened = marks[1] and #marks[1] >= SECRET_SIZE
local wanted, add_event, add_events
if listened then
  local function load_events()
-- include: events
  end

  if marks[2] or #marks[1] > SECRET_SIZE then
    load_events()
  else -- no listener wants events of this queue; the script may still add some of another queue
    function wanted(name, queue)
      if queue == ARGV[3] then return false end
      load_events()
      return wanted(name, queue)
    end
  end
end
