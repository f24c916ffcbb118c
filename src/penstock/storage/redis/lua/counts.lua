-- counts: the number of jobs in each state
-- flags: no-writes
-- keys: runs blocked ready scheduled retrying lanes turns parked completed failed cancelled meta
-- args:
-- gives: 0 when jobs may have expired: then `expire` first; else {scheduled, queued, blocked, running, retrying, completed,
--         failed, cancelled, paused since or false}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
if may_expire(q) then return 0 end
local up_to_now, after_now = '(' .. pack('>I6', now + 1), '[' .. pack('>I6', now + 1)
local function kept(state) return call('ZLEXCOUNT', q[state], after_now, '+') end
local function come(line) return call('ZLEXCOUNT', line, '-', up_to_now) end
local queued = call('ZCARD', q.ready) + call('ZCARD', q.parked) - call('HLEN', q.turns) + call('ZCARD', q.lanes)
  + come(q.scheduled) + come(q.retrying)
return { kept('scheduled'), queued, call('HLEN', q.blocked), call('HLEN', q.runs), kept('retrying'),
  kept('completed'), kept('failed'), kept('cancelled'), call('HGET', q.meta, 'paused') }
