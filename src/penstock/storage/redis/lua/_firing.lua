-- The ticks of one schedule: each becomes a job, or is known, skipped or dropped.

local carry_out
do -- helpers of it alone: a script has at most 200 local variables at once
  local OVERLAP_CANCELS = { replace = CANCEL.signal, kill = CANCEL.kill }

  local function is_known(q, id)
    if call('HEXISTS', q.jobs, id) == 0 then return false end
    local ended = spend(call('HGET', q.ends, id))
    if not ended then return true end
    local _, _, expires = parse_end(ended)
    return expires == 0 or expires > now
  end

  local function is_unfinished(q, id)
    return id and call('HEXISTS', q.jobs, id) == 1 and call('HEXISTS', q.ends, id) == 0
  end

  local function has_room(q, group, room)
    promote(q)
    local prefix = lane_prefix(group)
    return call('ZLEXCOUNT', q.lanes, '[' .. prefix, '(' .. sub(prefix, 1, -2) .. '\1') < room
  end

  local function fire_tick(q, s, e, f, channels)
    if is_known(q, e.id) then return 'known' end
    if f.overlap == 'queue' and e.group and not has_room(q, e.group, f.room) then return 'dropped' end
    if is_unfinished(q, s.last_id) then
      if f.overlap == 'skip' then return 'skipped' end
      local mode = OVERLAP_CANCELS[f.overlap]
      if mode then
        promote(q)
        expire(q)
        cancel_one(q, s.last_id, mode, f.cancel_ttl, channels)
        if effects then notices().apply(q) end
      end
    end
    put_one(q, e)
    return 'fired'
  end

  -- A firing: version, overlap, number of missed ticks, cursor, next tick, whether it is manual, room, TTL of cancelled
  -- jobs (-1: for ever), expiry, then nominal time and job (see read_entry) of each tick; false stands for none.
  local function read_firing(f)
    return { version = f[1], overlap = f[2], missed = f[3], cursor = f[4], next = f[5] or nil, manual = f[6], room = f[7],
      cancel_ttl = f[8] >= 0 and f[8] or nil, expires = f[9] or nil, ticks = f[10] }
  end

  -- Put the jobs of a firing and change the schedule, which the caller stores. Gives the numbers of ticks that fired, were
  -- skipped, dropped and known, and the places of those that were put.
  function carry_out(q, s, firing, channels)
    local f, count, placed = read_firing(firing), { fired = 0, known = 0, skipped = 0, dropped = 0 }, {}
    expire(q)
    for i, tick in ipairs(f.ticks) do
      local e = read_entry(tick[2])
      local outcome = fire_tick(q, s, e, f, channels)
      count[outcome] = count[outcome] + 1
      if outcome == 'fired' then
        s.last_id, s.last_at, placed[#placed + 1] = e.id, tick[1], i
      end
    end
    local fired = count.fired + count.known
    if not f.manual then
      s.cursor, s.next, s.fired, s.missed = f.cursor, f.next, s.fired + fired, s.missed + f.missed
      s.skipped, s.dropped = s.skipped + count.skipped, s.dropped + count.dropped
    end
    if f.expires then s.expires = f.expires end
    return { fired, count.skipped, count.dropped, count.known, placed }
  end
end
