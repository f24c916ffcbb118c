-- The cancellation of one job, for cancel, and for fire if the next tick of a schedule replaces its last job.
local cancel_one
do -- helpers of it alone: a script has at most 200 local variables at once
  local CANCEL_NOT_FOUND, CANCEL_FAILED, CANCEL_CANCELLED, CANCEL_RUNNING, CANCEL_REQUESTED = 0, 2, 3, 4, 5 -- ends as in STATES
  local CANCEL_GOES_ON, CANCEL_ALREADY = 8, 16
  local CANCEL_NAMES = { [0] = 'refuse', 'forget', 'signal', 'kill' }

  local function cancel_run(q, id, held, mode, kept, channels)
    local run = run_of(q, id, held)
    local worker = sub(call('HGET', q.batches, 'w' .. run.token) or '', 7) -- after the time of the claim
    local successor = run.successor and call('HGET', q.blocked, id)
    local already = run.cancel >= mode
    if mode > 0 then
      run.cancel, run.ttl = math.max(mode, run.cancel), kept
      if mode > 1 then
        local j = parse(call('HGET', q.jobs, id))
        if not already then emit('cancel_requested', q, id, j and j.attempts + 1 or 0, worker) end
        call('PUBLISH', channels .. worker, '')
      end
    end
    if successor then
      drop_successor(q, id, run)
      emit('cancelled', q, id, 0)
      return CANCEL_CANCELLED + CANCEL_GOES_ON
    end
    run.successor = false
    call('HSET', q.runs, id, build_run(run))
    if mode <= 1 then return CANCEL_RUNNING + CANCEL_GOES_ON end
    return CANCEL_REQUESTED + CANCEL_GOES_ON + (already and CANCEL_ALREADY or 0)
  end

  -- Let the next run of a durable job know that it was cancelled, and resume the job if it is suspended.
  local function resume_cancelled(q, id, j, kept)
    local g = flows().load(q, id)
    local already = g.cancel ~= false
    g.cancel = kept or -1
    if not already then emit('cancel_requested', q, id, j.attempts) end
    if g.suspended then flows().resume(q, id, j, g) else flows().save(q, id, g) end
    return CANCEL_REQUESTED + CANCEL_GOES_ON + (already and CANCEL_ALREADY or 0)
  end

  -- Gives a number as described in cancel.lua. `kept` is the TTL, nil for ever, `channels` the start of the channels of
  -- workers.
  -- `more` has `letter` and `value` of the end if the job ends with its flow.
  function cancel_one(q, id, mode, kept, channels, more)
    local rec = spend(call('HGET', q.jobs, id))
    if not rec then return CANCEL_NOT_FOUND end
    local ended = spend(call('HGET', q.ends, id))
    if ended then
      local state, _, expires = parse_end(ended)
      if expires ~= 0 and expires <= now then return CANCEL_NOT_FOUND end
      return state == 'cancelled' and CANCEL_CANCELLED + CANCEL_ALREADY or STATES[state] or CANCEL_FAILED
    end
    local held = call('HGET', q.runs, id)
    if held then return cancel_run(q, id, held, mode, kept, channels) end
    local j = parse(rec)
    if not j then return CANCEL_NOT_FOUND end
    local durable = j.flow and flows().is_durable(q, id)
    if durable and call('HEXISTS', q.blocked, id) == 1 then
      drop_successor(q, id)
      emit('cancelled', q, id, 0)
    end
    if durable and mode == CANCEL.signal then return resume_cancelled(q, id, j, kept) end
    leave(q, id, j)
    finish(q, id, { state = 'cancelled', token = '', ttl = kept, value = more and more.value or '', counted = 0, group = j.group,
      successor = false, attempt = j.attempts, job = j, letter = more and more.letter, mode = CANCEL_NAMES[mode] })
    return CANCEL_CANCELLED
  end
end
