-- set_ttl: set the retention of a finished job, from now on
-- flags: allow-oom
-- keys: jobs ends completed failed cancelled error_index attempts log stream meta generations notices
-- args: request, window (see _once.lua), id, ttl (-1: for ever)
-- gives: 1, or 0 when it is not there or not finished
-- include: shared errors once
local q = queue_at(ARGV[2], ARGV[3])
local id, ttl = ARGV[6], tonumber(ARGV[7])

return once(function()
  local ended = call('HGET', q.ends, id)
  if not ended then return 0 end
  local state, _, expires, number, _, _, value, bad = parse_end(ended)
  if expires ~= 0 and expires <= now then return 0 end
  if bad then
    damaged(q, 1)
    number = next_end(q)
    count_total(q, 'failed')
    ended = build_end('failed', 0, number, 0, '', '', '')
  else
    call('ZREM', q[state], end_member(expires, number, id))
  end
  if ttl == 0 then
    if state == 'failed' then errors().drop(q, id, number, value) end
    call('HDEL', q.ends, id)
    local rec = call('HGET', q.jobs, id)
    call('HDEL', q.jobs, id)
    forget_histories(q, { id })
    if has_part(rec) then flows().forget(q, { id }) end
  else
    local fresh = ttl > 0 and now + ttl or 0
    call('HSET', q.ends, id, sub(ended, 1, 7) .. pack('>I6', fresh) .. sub(ended, 14))
    call('ZADD', q[state], 0, end_member(fresh, number, id))
  end
  return 1
end)
