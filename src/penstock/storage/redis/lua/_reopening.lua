  -- Opening again what the end of a job had closed. A part of `_notices.lua`.

  function N.reopen(q, id)
    for _, notice in ipairs(F.notices_of(q, id)) do N.add(q, notice, id, false, false) end
  end

  -- Put a message into the outbox that revives the children of a flow. The caller saves its part.
  function N.revive_children(q, id, g, dropped)
    g.reviving = g.is_plan
    send_cascade(q, id, g, 'revive', nil, dropped)
  end

  -- Suspend a job that never began, or a plan, again: it was ended or released by its dependencies.
  local function suspend_again(q, id, j, g, ended)
    if ended then forget_end(q, id, ended) else leave(q, id, j) end
    j.error = ''
    g.ended, g.opening = false, g.opening + 1
    F.recount(q, g)
    F.suspend(q, id, j, g)
    call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    emit('suspended', q, id, j.attempts)
    if ended then N.reopen(q, id) else regroup(q, j.group) end
  end

  -- Open a dependency of a job again, because the job that it waits for was revived.
  function N.open_again(q, id, j, g, ended, number)
    local state, culprit = F.state_of(q, g, number)
    if not state or state == 'o' or ended and parse_end(ended) == 'completed' then return end
    if g.is_plan then
      F.open_again(q, g, number, state, culprit)
      g.waiting = g.waiting + 1
      if ended then
        suspend_again(q, id, j, g, ended)
        if g.plan[2] then N.revive_children(q, id, g, true) end
      end
    elseif number >= g.needs then
      local awaited = g.suspended and g.begun and F.awaits(g, number)
      if awaited or ended and culprit then
        F.open_again(q, g, number, state, culprit)
        if awaited then g.waiting = g.waiting + 1 end
      end
    elseif ended then
      if g.durable then return end
      F.open_again(q, g, number, state, culprit)
      if (g.ended == 'u' or g.ended == 's') and not N.verdict(q, g) then suspend_again(q, id, j, g, ended) end
    elseif not g.begun and call('HEXISTS', q.runs, id) == 0 then
      F.open_again(q, g, number, state, culprit)
      if g.suspended then g.waiting = g.waiting + 1 else suspend_again(q, id, j, g) end
    end
    F.save(q, id, g)
  end
