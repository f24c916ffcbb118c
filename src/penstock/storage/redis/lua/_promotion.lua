-- Jobs that fall due, and suspended ones whose wake time has come.
local promote
do -- helpers of it alone, as above
  -- Move one job to the order. A member that does not fit the record of its job is damaged; the job is moved nevertheless,
  -- unless it is somewhere else.
  local function promote_one(q, member, rec, retried)
    local id, j = sub(member, 13), parse(rec)
    if not j or due_member(j, id) ~= member then
      local drop = #member < 13 or is_placed(q, id, j)
      if j or drop then damaged(q, 1) end
      if drop then return end
    end
    if j then
      if retried then end_backoff(q, id, j) end
      enter(q, id, j)
      regroup(q, j.group, rank(0, j.due, j.seq))
    else -- damaged or missing: a claim finds that out
      call('ZADD', q.ready, 0, rank(0, unpack_head('>I6I6', member)) .. 'j' .. id)
    end
  end

  -- Move due jobs into the ready order, by due time; true when there may be more. A script that fails in the middle is not
  -- undone, so each member stays until its job has been moved.
  local function promote_from(q, line, retried)
    local due = call('ZRANGEBYLEX', line, '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, PROMOTE)
    local last = 0
    while last < #due and (last == 0 or budget > 0) do
      last = last + 1
      promote_one(q, due[last], spend(call('HGET', q.jobs, sub(due[last], 13))), retried)
      call('ZREM', line, due[last])
    end
    return #due == PROMOTE or last < #due
  end

  -- Resume the suspended jobs whose wake time has come; true when there may be more.
  local function wake_suspended(q)
    local due = call('ZRANGEBYLEX', q.suspended, '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, PROMOTE)
    local last = 0
    while last < #due and (last == 0 or budget > 0) do
      last = last + 1
      flows().wake(q, due[last])
    end
    return #due == PROMOTE or last < #due
  end

  -- Move due jobs into the ready order; true when there may be more, and then no job may be claimed yet. Every script that
  -- gives a group its turn promotes first, so that the order never depends on which client called first.
  function promote(q)
    if rawget(q, 'promoted') then return false end
    q.promoted = true
    if call('EXISTS', q.scheduled, q.retrying, q.closed, q.recheck, q.suspended) == 0 then
      q.has_no_later = true
      return false
    end
    local opened = limited_by(q) > 0 and gates().open_gates(q)
    local fresh, retried = promote_from(q, q.scheduled, false), promote_from(q, q.retrying, true)
    return wake_suspended(q) or fresh or retried or opened
  end
end
