-- The times by which the first runs of jobs must begin.

-- A job with a start-by time is in `expiring` until its first run begins.
local function add_expiry(q, id, j)
  if not j.start_by then return end
  call('ZADD', q.expiring, 0, expiry_member(j, id))
  local first = to_number(call('HGET', q.meta, 'expiry') or FOREVER)
  if j.start_by < first then call('HSET', q.meta, 'expiry', j.start_by) end
end
local function drop_expiry(q, id, j)
  if j and j.start_by then call('ZREM', q.expiring, expiry_member(j, id)) end
end

-- Whether a start-by time may have passed: `expiry` in meta is the first of them, or an earlier time.
local function may_expire(q)
  local first = call('HGET', q.meta, 'expiry')
  return first and to_number(first) <= now
end
