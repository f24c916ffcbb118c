-- The number of jobs in each state: scheduled, queued, blocked, running, retrying, completed, failed, cancelled, suspended.
local function counts_of(q)
  local up_to_now, after_now = '(' .. pack('>I6', now + 1), '[' .. pack('>I6', now + 1)
  local queued = call('ZCARD', q.ready) + call('ZCARD', q.parked) - call('HLEN', q.turns) + call('ZCARD', q.lanes)
    + call('ZLEXCOUNT', q.scheduled, '-', up_to_now) + call('ZLEXCOUNT', q.retrying, '-', up_to_now)
  local suspended = rawget(q, 'has_no_later') and 0 or call('ZCARD', q.suspended)
  local woken = suspended > 0 and call('ZLEXCOUNT', q.suspended, '-', up_to_now) or 0
  return { call('ZLEXCOUNT', q.scheduled, after_now, '+'), queued + woken, call('HLEN', q.blocked), call('HLEN', q.runs),
    call('ZLEXCOUNT', q.retrying, after_now, '+'), call('ZLEXCOUNT', q.completed, after_now, '+'),
    call('ZLEXCOUNT', q.failed, after_now, '+'), call('ZLEXCOUNT', q.cancelled, after_now, '+'), suspended - woken }
end
