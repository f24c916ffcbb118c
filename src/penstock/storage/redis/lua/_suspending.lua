-- running -> suspended, or queued at its place if the job waits for nothing; and the children of plans.
local built_suspending
local function suspending()
  if built_suspending then return built_suspending end
  local S = {}
  local F = flows()

  -- Set the wake time and the wait for a signal of a suspended run; a signal that has come is read at once.
  local function set_wait(q, j, g, s)
    local wake_at = s[10] and now + s[10] or s[9] or false
    if s[11] and wake_at then
      local _, _, value = F.checkpoint(q, j, g, { s[11], KIND_SLEEP, string.format('%.0f', wake_at), {} })
      if string.find(value, '^%d+$') then wake_at = tonumber(value) end
    end
    g.wait = false
    if s[8] then
      if F.checkpoint(q, j, g, { s[8][1], KIND_SIGNAL, '', s[8][2] }) then wake_at = false else g.wait = s[8] end
    end
    g.wake = wake_at
  end

  -- Suspend the run of a job, which has been dropped, and give the state of the job. `put_all` puts the children.
  function S.suspend(q, id, j, s, worker, put_all)
    local g, refs, group = F.load(q, id), {}, j.group
    if not g then g = F.new(F.plain_generation(j)) end
    j.flow, g.begun, g.durable, j.start_by = true, true, true, nil
    for _, new in ipairs(s[4]) do F.checkpoint(q, j, g, { new[1], new[2], blob(new[3]), new[4] }) end
    emit('suspended', q, id, j.attempts, sub(worker, 7))
    g.first, g.count = s[6], s[7]
    for i, new in ipairs(s[5] or {}) do
      local of = other_queue(q, new[1], new[2])
      refs[i] = { F.ref_of(of), new[3][1] }
    end
    F.add_dependencies(q, g, j, g.total, refs)
    g.total = g.total + #refs
    set_wait(q, j, g, s)
    F.recount(q, g)
    F.suspend(q, id, j, g)
    call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    F.keep_successor(q, id, worker)
    regroup(q, group)
    put_all(s[5])
    j = parse(call('HGET', q.jobs, id))
    if not j then return 'queued' end
    local waits = g.waiting > 0 or g.wait or g.wake and g.wake > now
    if g.suspended and not waits then F.resume(q, id, j, g) end
    local ended = call('HGET', q.ends, id)
    return ended and parse_end(ended) or waiting_state(q, id, j)
  end

  -- The follow-up jobs of a child of a plan, as children of the plan, which waits for them too; nil if it is none.
  function S.adopt(q, id, jobs)
    local mine = F.load(q, id)
    local ref = mine and mine.parent
    if not ref then return nil end
    local of = F.queue_of(q, ref[1])
    local j, ended, g = notices().living(of, ref[2], ref[3])
    if not j or ended or not g or not g.is_plan then return nil end
    local entries = {}
    for i, new in ipairs(jobs) do
      local e = read_entry(new[3])
      if not e.flow then
        local number = FOLLOW_UPS + g.adopted
        local open = g.open
        F.add_dependencies(of, g, j, number, { { F.ref_of(other_queue(q, new[1], new[2])), e.id } })
        g.waiting, g.adopted = g.waiting + g.open - open, g.adopted + 1
        e.flow = { generation = '', dependencies = {}, notices = { { ref[1], ref[2], ref[3], number, ON_ENDED } }, binds = '',
          parent = ref, plan = false, open = false }
      end
      entries[i] = e
    end
    F.save(of, ref[2], g)
    return entries
  end

  -- Note the dependencies whose failures are the error of a run.
  function S.blame(q, id, numbers)
    local g = F.load(q, id)
    for _, number in ipairs(g and numbers or {}) do
      local state = F.state_of(q, g, number)
      if state then F.set_state(q, g, number, state, true) end
    end
  end

  built_suspending = S
  return S
end
