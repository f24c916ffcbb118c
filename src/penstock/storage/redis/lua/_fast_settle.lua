-- The fast path of settle: completions of plain runs are written together. It must equal `settle_one` for each of
-- them; tests/storage/test_fast_and_slow.py compares the two. It stands before the helpers that it does not need.

local plain_runs, complete_together, complete_limited
do -- helpers of them alone: a script has at most 200 local variables at once
  local attempts_now, emit_completed
  if publish_events then -- a listener may want events of this queue
    -- The attempts of these runs, for their events; nil if a record cannot be read, or if they could be too long together.
    function attempts_now(ids)
      local attempts = {}
      local big = call('HGET', q.meta, 'big')
      if big and #ids * to_number(big, MAX_BYTES) > MAX_BYTES then return nil end
      for i, rec in ipairs(call('HMGET', q.jobs, unpack(ids))) do
        if format_of(rec) == 0 then return nil end
        attempts[i] = attempts_of(rec) + 1
      end
      return attempts
    end

    -- Add the events of the runs of one token, which begin at this argument.
    function emit_completed(plain, at, count, worker)
      local ids, attempts, results, before = {}, {}, {}, (at - 6) / 2
      for i = 1, count do
        ids[i], results[i], attempts[i] = ARGV[at + 2 * i - 2], ARGV[at + 2 * i - 1], plain.attempts[before + i]
      end
      add_events(plain.to, 'completed', q.name, ids, attempts, worker, results)
    end
  end

  -- The ids of these runs, the groups of those that have one, and the channels of their waiters. Nil unless all are plain:
  -- their tokens are right, no cancel was requested, no successor is behind them. Nil also if jobs are due that take their
  -- turns before these groups do; in a limited queue the caller sees to that.
  function plain_runs(parts)
    local ids, groups, at, limited = {}, {}, 0, false
    for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
    local runs = call('HMGET', q.runs, unpack(ids))
    for _, part in ipairs(parts) do
      local token, marked_run = part[1], nil -- the run of a job without a group in a limited queue
      for i = at + 1, at + part[3] do
        local run = runs[i]
        if not run then return nil end
        if run ~= token and run ~= marked_run then
          local group, marked = group_of_plain_run(run, token)
          if not group then return nil end
          limited = limited or marked
          if group ~= '' then groups[#groups + 1] = group elseif marked then marked_run = run end
        end
      end
      at = at + part[3]
    end
    if not limited then
      q.limited_by = 0
      if #groups > 0 and (next_due(q) or FOREVER) <= now then return nil end
    end
    local to = listened and wanted('completed', q.name)
    local attempts = to and attempts_now(ids)
    if to and not attempts then return nil end
    local awaited = #ids == 1 or call('EXISTS', q.waits) == 1
    return { ids = ids, groups = groups, limited = limited, waiters = awaited and call('HMGET', q.waits, unpack(ids)) or {},
      to = to, attempts = attempts }
  end

  -- The answer of settle, or nil if the counter of ended jobs is damaged. In a limited queue the caller frees the groups.
  function complete_together(parts, plain)
    local ids, groups, waiters = plain.ids, plain.groups, plain.waiters
    local last = add_to(q.meta, 'finished', #ids)
    if not last then return nil end
    local number, at, ends, done, held = last - #ids, 6, {}, {}, {}
    for _, part in ipairs(parts) do
      local token, ttl, count = part[1], part[2], part[3]
      local batch = call('HMGET', q.batches, 'w' .. token, 'n' .. token)
      local worker, expires = batch[1] or '', ttl > 0 and now + ttl or 0
      local before = pack('>BI6I6', 1, now, expires) -- as `build_end`
      local after = pack('>BBH', COUNT_ATTEMPT, #token, #worker) .. token .. worker
      local expiry = pack('>I6', expires == 0 and FOREVER or expires) -- as `end_member`
      for i = at, at + 2 * count - 2, 2 do
        number = number + 1
        local id, position = ARGV[i], pack('>I6', number)
        ends[i - 5], ends[i - 4] = id, before .. position .. after .. ARGV[i + 1]
        done[i - 5], done[i - 4] = '0', expiry .. position .. id
      end
      if plain.to then emit_completed(plain, at, count, sub(worker, 7)) end
      at = at + 2 * count
      held[#held + 1] = to_number(batch[2], false)
    end
    call('HSET', q.ends, unpack(ends))
    call('ZADD', q.completed, unpack(done))
    call('HDEL', q.runs, unpack(ids))
    for i, part in ipairs(parts) do end_runs(q, part[1], part[3], held[i]) end
    if #groups > 0 and not plain.limited then free_groups(q, groups) end
    for i, channels in ipairs(waiters) do
      if channels then notify_channels(channels, q, ids[i], 1, ARGV[5 + 2 * i]) end
    end
    return 1
  end

  -- The same for runs without groups in a queue with limits, unless its family has one: a worker that found the queue full
  -- may go on, as `freed` in _families.lua decides.
  function complete_limited(parts, plain)
    if #plain.groups > 0 or has(limited_by(q), FAMILY) then return nil end
    local concurrency = plain_concurrency(q)
    if not concurrency or not complete_together(parts, plain) then return nil end
    if concurrency > 0 and call('EXISTS', q.ready) == 1 then wake(q) end
    return 1
  end
end
