    -- What a loop over groups reads of them, in one step before it, and what it writes, together after it: their turns, holds
    -- and gates, and which are closed. A part of `_gates.lua`. Between the two steps the tables of the batch count, and
    -- nothing else may read or write these of its groups.
    local batch

    -- Read these groups, unless the batch has them.
    local function read_groups(q, groups)
      local new = {}
      for _, group in ipairs(groups) do
        if batch.turns[group] == nil then
          new[#new + 1] = group
          batch.turns[group] = false
        end
      end
      if #new == 0 then return end
      local turns, holds = call('HMGET', q.turns, unpack(new)), call('HMGET', q.holds, unpack(new))
      local stored, known = call('HMGET', q.gates, unpack(new)), gates_known(q)
      local own = has(limited_by(q), SINGLE) and {}
      for i, group in ipairs(new) do
        batch.turns[group], batch.holds[group] = turns[i], to_number(holds[i] or 0, false) or recount_holds(q, group)
        known[group] = known[group] or read_gate(stored[i])
        if own then own[i] = 'g' .. group end
      end
      if not own then return end
      local single = rules_of(q).single
      for i, packed in ipairs(call('HMGET', q.limits, unpack(own))) do single[new[i]] = read_rule(packed) or false end
    end

    -- Send what was written: removals first, because a group that takes another turn loses the one before.
    local function write_groups(q)
      local b = batch
      batch = nil
      if b.seq and b.taken > 0 then take_seq(q, b.taken) end
      local function send(command, key, list) if #list > 0 then call(command, key, unpack(list)) end end
      local gone, lost, ready, turns = {}, {}, {}, {}
      for group, member in pairs(b.turned) do
        local before = b.turns[group]
        if before then gone[#gone + 1] = member_of(before, group) end
        if member then
          ready[#ready + 1], ready[#ready + 2] = '0', member
          turns[#turns + 1], turns[#turns + 2] = group, member
        elseif before then
          lost[#lost + 1] = group
        end
      end
      send('ZREM', q.ready, gone)
      send('HDEL', q.turns, lost)
      send('ZADD', q.ready, ready)
      send('HSET', q.turns, turns)
      local held, free = {}, {}
      for group in pairs(b.held) do
        local count = b.holds[group]
        if count > 0 then held[#held + 1], held[#held + 2] = group, count else free[#free + 1] = group end
      end
      send('HSET', q.holds, held)
      send('HDEL', q.holds, free)
      if #b.left > 0 and call('ZREM', q.closed, unpack(b.left)) < #b.left then call('ZREM', q.recheck, unpack(b.left)) end
      local closed = {}
      for member in pairs(b.closed) do closed[#closed + 1], closed[#closed + 2] = '0', member end
      send('ZADD', q.closed, closed)
      write_gates(q, b.gates)
      if b.opens then -- groups were closed until a time
        call('HSET', q.meta, 'looked', now)
        wake_by(q, b.opens)
      end
    end

    -- Call a function with the batch of these groups. One inside of another is a part of it.
    local function with_groups(q, groups, visit)
      if batch then
        read_groups(q, groups)
        return visit()
      end
      batch = { turns = {}, turned = {}, holds = {}, held = {}, closed = {}, left = {}, gates = {}, taken = 0 }
      read_groups(q, groups)
      local a, b, c = visit()
      write_groups(q)
      return a, b, c
    end
    G.with_groups = with_groups

    -- The turn of a group as it is stored, for claims.
    function G.stored_turn(group) return batch.turns[group] end

    -- The member of ready of a group, or nil.
    local function turn_now(q, group)
      local member = batch.turned[group]
      if member ~= nil then return member or nil end
      local stored = batch.turns[group]
      if not stored then return nil end
      if is_turn(stored, group) then return member_of(stored, group) end
      member = turn_of(q, group) -- it was parked, or is damaged
      batch.turns[group] = member or false
      return member
    end

    -- Give a group a turn, or take it away (nil). A claim names the member of ready that it has used.
    local function set_turn(group, member, used)
      batch.turned[group] = member or false
      if used then batch.turns[group] = used end
    end

    -- As `next_seq`.
    local function batch_seq(q)
      if not batch.seq then batch.seq = take_seq(q, 0) end
      batch.taken = batch.taken + 1
      return batch.seq + batch.taken
    end

    -- As `hold`.
    local function hold_now(group, by)
      batch.holds[group], batch.held[group] = math.max(batch.holds[group] + by, 0), true
    end
    G.set_turn, G.next_seq, G.hold = set_turn, batch_seq, hold_now
