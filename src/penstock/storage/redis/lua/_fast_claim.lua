-- The fast path of claim: one job of each entry at the front of the order, if all of them can simply be taken. It must
-- equal `round` and, in a queue with limits, `claim_gated`, which take the entries one by one;
-- tests/storage/test_fast_and_slow.py compares them.

local claim_front
do -- helpers of it alone: a script has at most 200 local variables at once
  -- Whether the records can be read, and are those of their entries. Most are plain, and compared in one step: `plain` is
  -- whether all entries have the rank of jobs without priority.
  local function all_fit(recs, members, head_at, plain)
    local find = string.find
    for i, rec in ipairs(recs) do
      if not rec then return false end
      local at, format, flags = head_at[i], byte(rec, 1, 2)
      if plain and flags == SHORT and not at and #rec >= SHORT_SIZE then
        if format ~= FORMAT or find(members[i], sub(rec, 3, 14), 5, true) ~= 5 then return false end
      else
        format = format_of(rec)
        if format == 0 or format > FORMAT or has(flags, FLOW) then return false end
        if at and not is_placed_by(members[i], at, rec) or not at and not is_ranked_by(members[i], rec) then return false end
      end
    end
    return true
  end

  -- How many jobs may start now, and how many the queue allows if it has a limit. Nil if that takes more than its
  -- concurrency: the family may have a limit, the queue has a rate, or a group has a gate.
  local function room_left()
    if limited == 0 then return limit end
    if has(limited_by(q), FAMILY) or call('EXISTS', q.gates, q.closed, q.recheck) > 0 then return nil end
    local concurrency = plain_concurrency(q)
    if not concurrency then return nil end
    if concurrency == 0 then return limit end
    local room = concurrency - call('HLEN', q.runs)
    return math.min(limit, room), room
  end

  -- The front of the order: ids, records, runs, and of the groups among the entries their names, the fields of `holds`, and
  -- the members of `lanes`. Nil if a record is missing, damaged or in a newer format, or does not fit its entry, or if they
  -- could be too long together, or if a group is among them and the queue has limits.
  local function plain_front(most)
    local ids, runs, groups, held, heads, places, head_at = {}, {}, {}, {}, {}, {}, {}
    local members, run = call('ZRANGE', q.ready, '0', most - 1), limited == 1 and limited_run(token, '') or token
    for i, member in ipairs(members) do
      ids[i] = sub(member, 18)
      if byte(member, 17) == 103 then -- 'g'
        if limited == 1 then return nil end
        groups[#groups + 1], places[#groups + 1] = ids[i], i
      else
        runs[2 * i - 1], runs[2 * i] = ids[i], run
      end
    end
    if #ids == 0 then return ids, ids end
    if big and #ids * big > MAX_BYTES then return nil end
    local plain = sub(members[1], 1, 4) == PLAIN_RANK and sub(members[#members], 1, 4) == PLAIN_RANK
    local turns = #groups > 0 and call('HMGET', q.turns, unpack(groups))
    for at, group in ipairs(groups) do
      local i = places[at]
      if not turns[at] or member_of(turns[at], group) ~= members[i] then return nil end
      local head = known_head(turns[at], group) or lane_head(q, group, '1')[1]
      if not head then return nil end
      head_at[i], members[i] = id_at(group), head
      local id = sub(head, head_at[i])
      ids[i], runs[2 * i - 1], runs[2 * i] = id, id, group_run(token, group)
      heads[at], held[2 * at - 1], held[2 * at] = head, group, '1'
    end
    local recs = call('HMGET', q.jobs, unpack(ids))
    if not all_fit(recs, members, head_at, plain) then return nil end
    return ids, recs, runs, groups, held, heads
  end

  -- Add the events of these runs, if there is a listener to them.
  local function emit_started(ids, recs)
    local to, attempts = wanted('started', q.name), {}
    if not to then return end
    for i, rec in ipairs(recs) do attempts[i] = attempts_of(rec) + 1 end
    add_events(to, 'started', q.name, ids, attempts, worker)
  end

  -- The answer of claim, or nil if the general path must make it: jobs are parked or may expire, a batch may have several
  -- jobs, jobs have fallen due, or limits allow none or must be looked at.
  function claim_front()
    if not FAST or known[2] or known[4] or size ~= 1 or limit <= 0 then return nil end
    local due = next_due(q)
    if due and due <= now then return nil end
    local most, room = room_left()
    if not most or most <= 0 then return nil end
    local ids, recs, runs, groups, held, heads = plain_front(most)
    if not ids then return nil end
    if #ids > 0 then
      start_runs(ids, runs)
      if listened then emit_started(ids, recs) end
      call('ZREMRANGEBYRANK', q.ready, '0', #ids - 1)
      if #groups > 0 then
        call('ZREM', q.lanes, unpack(heads))
        call('HDEL', q.turns, unpack(groups))
        if #groups > MANY then held[#held + 1], held[#held + 2] = '', WIDE end
        call('HSET', q.holds, unpack(held))
      end
    end
    local more = #ids == most and #ids ~= room and call('ZCARD', q.ready) > 0 -- if it is full, none need come
    return { #ids < MAX_BATCH and 0 or 2, pass_on(more, due), ids, recs, false, {}, {}, limited, known[7], known[7] and now }
  end
end
