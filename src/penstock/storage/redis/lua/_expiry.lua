-- Expiry: waiting or blocked -> cancelled, if the first run of a job has not begun by its start-by time. Each script that
-- reads or claims waiting jobs begins with it. `expiry` in meta is the first of these times or an earlier one, so a queue
-- without such jobs costs one comparison.

-- Set `expiry` after members of `expiring` have gone.
local function reset_expiry(q)
  local first = first_of(q, q.expiring)
  if first then
    call('HSET', q.meta, 'expiry', (unpack_head('>I6', first)))
  else
    call('HDEL', q.meta, 'expiry')
  end
end

-- Load the transitions, in a script that has none: jobs end because of the end of another.
local function ending()
  if notices then return end
-- include: transitions
end

local expire
do -- helpers of it alone: a script has at most 200 local variables at once
  -- As `finish` in `_transitions.lua` does for a job without a run.
  local function expire_waiting(q, id, j)
    leave(q, id, j)
    if j.window then windows().free(q, id, j) end
    local number, expires = next_end(q), now + EXPIRED_MS
    count_total(q, 'cancelled')
    call('HSET', q.ends, id, build_end('cancelled', expires, number, 0, '', '', EXPIRED))
    call('ZADD', q.cancelled, 0, end_member(expires, number, id))
    notify_waiters(q, id, 'cancelled', EXPIRED)
    emit('cancelled', q, id, j.attempts, nil, nil, EXPIRED)
    if j.flow then
      ending()
      notices().ended(q, id, { state = 'cancelled', value = EXPIRED })
    end
    regroup(q, j.group)
  end

  local function expire_blocked(q, id, run, j)
    call('HDEL', q.blocked, id)
    if run then
      local r = run_of(q, id, run)
      r.successor = false
      call('HSET', q.runs, id, build_run(r))
    else
      call('ZREM', q.successors, id)
    end
    emit('cancelled', q, id, 0, nil, nil, EXPIRED)
    if j.flow then
      ending()
      notices().gone(q, id)
    end
  end

  -- A member that fits no job that waits is only removed: it is damaged, or its job is.
  local function expire_one(q, member)
    local id = sub(member, 13)
    local run = call('HGET', q.runs, id)
    call('ZREM', q.expiring, member)
    local blocked, rec = run ~= false, nil
    if run then rec = sub(call('HGET', q.blocked, id) or '', 2) else rec = spend(call('HGET', q.jobs, id)) end
    local j = parse(rec)
    if not run and j and j.flow and not (j.start_by and expiry_member(j, id) == member) then
      blocked, j = true, parse(sub(call('HGET', q.blocked, id) or '', 2))
    end
    if not j or not j.start_by or expiry_member(j, id) ~= member then
      damaged(q, 1)
    elseif blocked then
      expire_blocked(q, id, run, j)
    elseif call('HEXISTS', q.ends, id) == 0 then
      expire_waiting(q, id, j)
    end
  end

  -- End the jobs whose start-by time has passed; true when there may be more, and then no job may be claimed yet. `first` is
  -- `expiry` if the script has read it.
  function expire(q, first)
    first = to_number(first or call('HGET', q.meta, 'expiry') or FOREVER)
    if first > now then return false end
    local due = call('ZRANGEBYLEX', q.expiring, '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, PROMOTE)
    if #due > 0 and promote(q) then return true end
    local last = 0
    while last < #due and (last == 0 or budget > 0) do
      last = last + 1
      expire_one(q, due[last])
    end
    reset_expiry(q)
    if effects then notices().apply(q) end
    return #due == PROMOTE or last < #due
  end
end
