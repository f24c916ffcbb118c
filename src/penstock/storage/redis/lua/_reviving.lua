-- The revival of one job, for revive, and for relay if the flow of the job is revived.
local revive_one
do -- helpers of it alone: a script has at most 200 local variables at once
  -- Open again what a revived job had closed, and suspend it if its own dependencies are open or not met. Gives its part,
  -- and whether it is suspended.
  local function revive_part(q, id, j, completed, fresh)
    local F, N = flows(), notices()
    if completed then call('HDEL', q.notices, id) else N.reopen(q, id) end
    local g = F.load(q, id)
    if fresh and not g then
      g, j.flow = F.new(F.plain_generation(j)), true
    end
    if not g then return nil, false end
    g.ended, g.opening = false, g.opening + 1
    if fresh then F.forget_journal(q, g) end
    local waits = false
    if g.is_plan then
      waits = true
      N.revive_children(q, id, g)
    elseif not g.durable then
      g.begun = false
      waits = not completed and (N.verdict(q, g) or not g.final or F.count_open(q, g, 0, g.needs) > 0)
    end
    local number, any = -1, false
    while true do
      number = F.next(q, g, '%u', number, 2 * FOLLOW_UPS)
      if not number then break end
      local state = F.state_of(q, g, number)
      any = true
      if state ~= 'o' then F.open_again(q, g, number, state, true) end
    end
    if any then N.revive_children(q, id, g) end
    F.save(q, id, g)
    return g, waits
  end

  -- Gives 1 if the job is queued or suspended again, else 0.
  function revive_one(q, id, completed, fresh)
    local ended = spend(call('HGET', q.ends, id))
    local j = ended and parse(spend(call('HGET', q.jobs, id)))
    if not j then return 0 end
    local state, _, expires = parse_end(ended)
    if (state == 'completed' and not completed) or (expires ~= 0 and expires <= now) then return 0 end
    local g = j.flow and flows().load(q, id)
    if g and g.is_plan and (state == 'completed' or fresh) then return 0 end
    if g and (g.ended == 'u' or g.ended == 's') and notices().verdict(q, g) then return 0 end
    forget_end(q, id, ended)
    j.time, j.seq, j.due = acceptance(q), next_seq(q), now
    j.attempts, j.retries, j.stalls, j.timeouts = 0, 0, 0, 0
    j.retried, j.solo, j.start_by, j.error, j.settled, j.earliest = false, false, nil, '', '', 0
    windows().take(q, id, j)
    local part, waits
    if j.flow or fresh then part, waits = revive_part(q, id, j, state == 'completed', fresh) end
    if not waits then
      store(q, id, j)
      emit('enqueued', q, id, 0)
      return 1
    end
    emit('enqueued', q, id, 0)
    flows().recount(q, part)
    flows().suspend(q, id, j, part)
    call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    notices().evaluate(q, id, j, part)
    return 1
  end
end
