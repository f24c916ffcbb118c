  -- Suspended jobs, journals and signals, and the parts of claims and snapshots. A part of `_flows.lua`.

  -- Suspended jobs -----------------------------------------------------------------------------------

  local function member_of_suspended(id, j, g) return pack('>I6I6', min(g.wake or FOREVER, FOREVER), j.seq) .. id end

  function F.is_suspended(q, id)
    local g = F.load(q, id)
    return g ~= nil and g.suspended
  end

  -- Whether its runs have recorded something, so that its payload stays until it ends.
  function F.is_durable(q, id)
    local g = F.load(q, id)
    return g ~= nil and g.durable
  end

  -- The state of a job that does not run: suspended until its wake time, then queued by the clock alone; nil if another
  -- record has it.
  function F.waiting_state(q, id)
    local g = F.load(q, id)
    if not g or not g.suspended then return nil end
    return g.wake and g.wake <= now and 'queued' or 'suspended'
  end

  -- The successor of a job that does not run is listed by the begin of the run that it waited for.
  function F.keep_successor(q, id, worker)
    if call('HEXISTS', q.blocked, id) == 0 then return end
    local begun = #worker >= 6 and unpack_head('>I6', worker) or now
    call('ZADD', q.successors, begun, id)
  end

  -- Suspend a job, whose record the caller stores. One that has begun holds its group, as a backoff does.
  function F.suspend(q, id, j, g)
    g.suspended, j.retried = true, g.begun and not g.is_plan
    call('ZADD', q.suspended, 0, member_of_suspended(id, j, g))
    if j.retried then begin_backoff(q, id, j) end
    if g.wake then wake_by(q, g.wake) end
    if not g.final then call('ZADD', family_start(q.prefix) .. 'open_flows', g.extended or now, F.ref_of(q) .. '\0' .. id) end
    F.save(q, id, g)
  end

  -- Take a job out of `suspended`; false if it is not there. The caller saves its part.
  function F.leave(q, id, j)
    local g = F.load(q, id)
    if not g or not g.suspended then return false end
    call('ZREM', q.suspended, member_of_suspended(id, j, g))
    if j.retried then end_backoff(q, id, j) end
    if not g.final then call('ZREM', family_start(q.prefix) .. 'open_flows', F.ref_of(q) .. '\0' .. id) end
    j.retried, g.suspended = false, false
    return true
  end

  -- suspended -> queued at its place; a group that enters the rotation by it gets this turn, or its turn now.
  function F.resume(q, id, j, g, turn)
    F.leave(q, id, j)
    g.wake, g.wait, g.first, g.count, g.waiting = false, false, 0, 0, 0
    F.save(q, id, g)
    emit('resumed', q, id, j.attempts)
    call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    enter(q, id, j)
    regroup(q, j.group, rank(0, turn or now, j.seq))
  end

  -- Resume one job whose wake time has come. A wait for a signal has timed out then.
  function F.wake(q, member)
    local id = sub(member, 13)
    local j, g = parse(spend(call('HGET', q.jobs, id))), F.load(q, id)
    if not j or not g or not g.suspended or member_of_suspended(id, j, g) ~= member then
      call('ZREM', q.suspended, member)
      return damaged(q, 1)
    end
    if g.wait then F.write(q, j, g, g.wait[1], KIND_SIGNAL, '') end
    F.resume(q, id, j, g, g.wake)
  end

  -- Journals -----------------------------------------------------------------------------------------

  local function journal_of(q, g) return q.prefix .. 'journal:' .. g.key end

  -- The checkpoint of a name: number, kind, value; nil if there is none.
  function F.checkpoint_of(q, g, name)
    local stored = g.key ~= '' and spend(call('HGET', journal_of(q, g), 'c' .. name))
    if not stored or #stored < 5 then return nil end
    local n, kind = unpack_head('>I4B', stored)
    return n, kind, sub(stored, 6)
  end

  -- Write a checkpoint; it forgives the failed runs of its job. The caller stores both records.
  function F.write(q, j, g, name, kind, value)
    F.ensure_key(g, j)
    local n, _, old = F.checkpoint_of(q, g, name)
    g.bytes = g.bytes + #value - (old and #old or -#name)
    n = n or call('RPUSH', q.prefix .. 'order:' .. g.key, name)
    call('HSET', journal_of(q, g), 'c' .. name, spend(pack('>I4B', n, kind) .. value))
    g.durable = true
    j.retries, j.stalls, j.timeouts = 0, 0, 0
    return n
  end

  -- Store a checkpoint {name, kind, value, signals} unless there is one of its name. Gives number, kind and value of the
  -- stored one; nil for a signal that has not come.
  function F.checkpoint(q, j, g, new)
    local name, kind, value = new[1], new[2], new[3]
    local n, old_kind, old = F.checkpoint_of(q, g, name)
    if n and not (kind == KIND_CURSOR and old_kind == KIND_CURSOR) then return n, old_kind, old end
    if kind == KIND_SIGNAL then
      value = F.take_signal(q, g, new[4])
      if not value then return nil end
    end
    return F.write(q, j, g, name, kind, value), kind, value
  end

  -- Forget what the runs of a job have recorded, and the children that they made. The caller saves its part.
  function F.forget_journal(q, g)
    g.fresh, g.durable = g.fresh + 1, false
    if g.key == '' then return end
    local number = g.needs - 1
    while true do
      number = F.next(q, g, '[ocfxusdOCFXUSD]', number, FOLLOW_UPS)
      if not number then break end
      local state, culprit = F.state_of(q, g, number)
      if state ~= 'o' then F.open_again(q, g, number, state, culprit) end
      local ref, id = F.ref_at(q, g, number)
      g.open, g.bytes = g.open - 1, g.bytes - #F.name_of(ref) - #id
    end
    local deps, refs, order = q.prefix .. 'deps:' .. g.key, q.prefix .. 'refs:' .. g.key, q.prefix .. 'order:' .. g.key
    if g.needs == 0 then
      call('DEL', deps, refs)
    else
      call('SET', deps, call('GETRANGE', deps, 0, g.needs - 1))
      call('LTRIM', refs, 0, g.needs - 1)
    end
    local name = call('LPOP', order)
    while name do
      local _, _, value = F.checkpoint_of(q, g, name)
      g.bytes = g.bytes - #name - #(value or '')
      call('HDEL', journal_of(q, g), 'c' .. name)
      name = call('LPOP', order)
    end
  end

  -- Signals ------------------------------------------------------------------------------------------

  function F.unread(q, g) return g.key == '' and 0 or call('LLEN', q.prefix .. 'signals:' .. g.key) end

  function F.keep_signal(q, j, g, name, value)
    F.ensure_key(g, j)
    g.signals = g.signals + 1
    call('RPUSH', q.prefix .. 'signals:' .. g.key, pack('>I6', g.signals) .. name)
    call('HSET', journal_of(q, g), 's' .. number_text(g.signals), value)
  end

  -- Take the first unread signal of one of these names: name, NUL and value; nil if there is none.
  function F.take_signal(q, g, names)
    if g.key == '' then return nil end
    local key, wanted_names = q.prefix .. 'signals:' .. g.key, {}
    for _, name in ipairs(names) do wanted_names[name] = true end
    for _, entry in ipairs(call('LRANGE', key, 0, MAX_SIGNALS - 1)) do
      local name = sub(entry, 7)
      if wanted_names[name] and #entry >= 6 then
        local field = 's' .. number_text((unpack_head('>I6', entry)))
        local value = call('HGET', journal_of(q, g), field) or ''
        call('LREM', key, 1, entry)
        call('HDEL', journal_of(q, g), field)
        return name .. '\0' .. value
      end
    end
  end

  -- Reads --------------------------------------------------------------------------------------------

  -- The checkpoints after a number: number, name, kind and value of each; true follows if there are more.
  function F.read_journal(q, g, after, limit)
    local found = {}
    if g.key == '' then return found, false end
    local names = call('LRANGE', q.prefix .. 'order:' .. g.key, after, after + limit)
    for i, name in ipairs(names) do
      if i > limit or budget <= 0 then return found, true end
      local n, kind, value = F.checkpoint_of(q, g, name)
      if n then found[#found + 1] = { n, name, kind, value } end
      budget = budget - #name
    end
    return found, false
  end

  -- The dependencies after a number: number, queue, id, letter and value or false of each; true follows if there are more.
  function F.read_dependencies(q, g, after, limit)
    local found = {}
    while true do
      local number = F.next(q, g, '[ocfxusdOCFXUSD]', after, 2 * FOLLOW_UPS)
      if not number then return found, false end
      if #found >= limit or budget <= 0 then return found, true end
      local ref, id = F.ref_at(q, g, number)
      local value = spend(F.value_of(q, g, number))
      found[#found + 1] = { number, F.name_of(ref), id, (F.state_of(q, g, number)), value or false }
      budget = budget - #ref - #id
      after = number
    end
  end

  local function parent_of(g) return g.parent and { F.name_of(g.parent[1]), g.parent[2], g.parent[3] } or false end

  -- The part of a claim, or nil; it notes that the job has begun. Then the cancel mode and TTL of its run.
  function F.claim(q, id)
    local g = F.load(q, id)
    if not g then return nil end
    g.begun = true
    local cancel = g.cancel
    g.cancel = false
    F.save(q, id, g)
    local closed = 0
    for _, count in ipairs(g.ends or {}) do closed = closed + count end
    local entries = (g.key ~= '' and call('LLEN', q.prefix .. 'order:' .. g.key) or 0) + g.open + closed
    local whole = g.bytes <= JOURNAL_BYTES and entries <= JOURNAL_ENTRIES
    local part = { g.generation, now, parent_of(g), g.binds, g.needs, g.total, g.fresh,
      whole and F.read_journal(q, g, 0, JOURNAL_ENTRIES) or {}, whole and F.read_dependencies(q, g, -1, JOURNAL_ENTRIES) or {},
      whole and 1 or 0, cancel and 1 or 0 }
    return part, cancel
  end

  -- The part of a snapshot, or false.
  function F.shown(q, id)
    local g = F.load(q, id)
    if not g then return false end
    local waits, number = {}, -1
    local first, before = F.awaited(g)
    number = first - 1
    while g.suspended and #waits < 3 do
      number = F.next(q, g, '[oO]', number, before)
      if not number then break end
      local ref, of = F.ref_at(q, g, number)
      waits[#waits + 1] = { F.name_of(ref), of }
    end
    return { g.generation, parent_of(g), g.is_plan and 1 or 0, g.final and 1 or 0, g.needs, g.open, g.ends or {}, waits,
      g.suspended and g.wake or false, g.suspended and g.wait and g.wait[2] or {}, F.unread(q, g) }
  end
