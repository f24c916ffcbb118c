-- The claim of a queue with limits: entry by entry, each after its gates.

-- Take jobs from the front while the family and the queue allow it. Gives true if they allow no more now, and when their
-- rates do, if that is known.
local function claim_gated()
  local G = gates()
  local family, own = G.family_limit(q), G.rules_of(q).queue
  local own_gate, running = own and G.gate_of(q, ''), call('HLEN', q.runs)
  local changed, opens = {}, nil -- the rates that were looked at or charged
  local used, left_lanes = {}, {} -- members of ready and of lanes that are used up, and not removed yet

  -- How many more runs the family and the queue allow.
  local function outer_room()
    local left = MAX_BATCH
    if family and family.rule.concurrency > 0 then left = math.min(left, family.rule.concurrency - family.running - #ids) end
    if own and own.concurrency > 0 then left = math.min(left, own.concurrency - running - #ids) end
    return left
  end

  local function rate_allows(gate, rule, cost, name)
    if gate.tat > 0 and G.meet(gate, rule) then changed[name] = true end
    local at = G.rate_opens(gate, rule, cost)
    if at > now then opens = at end
    return at <= now
  end

  -- Whether the rates of the family and the queue allow a start of this job.
  local function outer_rates(rec)
    return (not family or rate_allows(family.gate, family.rule, cost_of(rec), 'family'))
      and (not own or rate_allows(own_gate, own, cost_of(rec), 'own'))
  end

  local function pay(rec)
    if family and G.charge(family.gate, family.rule, cost_of(rec)) then changed.family = true end
    if own and G.charge(own_gate, own, cost_of(rec)) then changed.own = true end
  end

  local function is_full()
    if outer_room() > 0 then return false end
    if family and family.rule.concurrency > 0 then G.wait_for_family(q) end
    return true
  end

  local function leave_lanes()
    if #left_lanes > 0 then call('ZREM', q.lanes, unpack(left_lanes)) end
    left_lanes = {}
  end

  local function park_member(member, format, group)
    aside, parked = aside + 1, parked + 1
    park(q, format, member, group)
    used[#used + 1] = member
  end

  -- A job without a group; gives false when the claim ends, and true follows if that is because of a gate.
  local function start_job(member, id, rec)
    if readable(rec) and id ~= '' and byte(member, 17) == 106 then -- 'j'
      local joins = not is_solo(rec) and not solo_batch and filled < size
      if batches == limit and not joins then return false, false end
      if is_full() or not outer_rates(rec) then return false, true end
    elseif id ~= '' and newer(rec) then
      park_member(member, newer(rec))
      return true
    end
    local taken = #ids
    if not take_job(1, member, id, rec) then return false, false end
    if #ids > taken then pay(rec) end
    used[#used + 1] = member
    return true
  end

  -- The first jobs of a group, from these members of its lane: up to one that must run alone or has a newer format, and as
  -- many as the rates allow. Gives their number, the members that are used up, the format of the first if that is why there
  -- are none, and whether a rate of the family or the queue is.
  local function take_group(group, members, most, g, rule, rec)
    local at, taken, left = id_at(group), 0, {}
    for i = 1, math.min(#members, most) do
      if bound_reached() then break end
      local member = members[i]
      local id = sub(member, at)
      if i > 1 then rec = call('HGET', q.jobs, id) end
      local format = not readable(rec) and newer(rec)
      if format then
        if taken == 0 then return 0, left, format end
        break
      elseif not readable(rec) then
        set_aside(id, rec)
        left[#left + 1] = member
      elseif not is_placed_by(member, at, rec) and is_stale(id, rec) then
        left[#left + 1] = member
      else
        if taken > 0 and (is_solo(rec) or G.rate_opens(g, rule, cost_of(rec)) > now) then break end
        if not outer_rates(rec) then
          if taken == 0 then return 0, left, nil, true end
          opens = nil
          break
        end
        if taken == 0 then batches = batches + 1 end
        taken = taken + 1
        left[#left + 1] = member
        take(id, rec, group)
        pay(rec)
        G.charge(g, rule, cost_of(rec))
        if is_solo(rec) then break end
      end
    end
    return taken, left
  end

  -- After a start of a group, whose next job is `rest`: as `look_at` does. Gives its member of ready if it is open.
  local function after_start(member, group, g, rule, taken, runs, rest)
    g.used = g.used + 1
    if rest and g.used < rule.weight then g.turn = sub(member, 1, 16) else g.turn, g.used = nil, 0 end
    if not rest then
      G.set_turn(group, nil, member)
      return G.store_gate(q, group, g)
    end
    local full = rule.ordered or runs + taken >= math.max(rule.concurrency, 1)
    local at = full and FOREVER or G.time_of(q, group, g, rule, rest)
    if at > now then
      G.set_turn(group, nil, member)
      return G.close(q, group, g, at)
    end
    local again = (g.turn or rank(0, now, G.next_seq(q))) .. 'g' .. group
    G.set_turn(group, again, member)
    if g.stored or rule.step > 0 or rule.weight > 1 then G.store_gate(q, group, g) end
    return again
  end

  -- A group: it starts its first jobs, or is closed or parked. Gives the same as `start_job`, and last its member of ready
  -- if it is in the rotation again. `members` are the first of its lane, `rec` is the record of the first.
  local function start_group(member, group, members, rec)
    if batches == limit then return false, false end
    local turn = G.stored_turn(group)
    if turn ~= member and not has_turn({ group = group, turn = turn }, member) then
      used[#used + 1] = member
      return true
    end
    local g, rule, head = G.gate_of(q, group), G.rule_of(q, group), members[1]
    local format = head and not readable(rec) and newer(rec)
    if format then
      park_member(member, format, group)
      return true
    end
    if is_full() then return false, true end
    local runs, held = G.runs_of_group(q, group)
    if head then
      local at, looked = FOREVER, false
      if G.has_room(rule, runs, held) then at, looked = G.time_of(q, group, g, rule, head) end
      if at > now then
        aside = aside + 1
        G.set_turn(group, nil, member)
        G.close(q, group, g, at)
        return true
      end
      if looked then G.store_gate(q, group, g) end
    end
    local most = math.min(size, outer_room())
    if rule.concurrency > 1 then most = math.min(most, math.max(rule.concurrency - runs, 1)) end
    local taken, left, unknown, closed = take_group(group, members, most, g, rule, rec)
    for _, member in ipairs(left) do left_lanes[#left_lanes + 1] = member end
    if closed then return false, true end
    filled, solo_batch, turned[group] = 0, true, true
    if unknown then -- the jobs before it could not be read
      park_member(member, unknown, group)
      return true
    end
    if taken == 0 then
      leave_lanes()
      G.set_turn(group, nil, member)
      G.look_at(q, group)
      return true, false, ''
    end
    G.hold(group, taken)
    return true, false, after_start(member, group, g, rule, taken, runs, members[#left + 1])
  end

  -- How many entries are read at once: not many more than may start.
  local function read_size()
    if big then return 1 end
    local most = math.min(outer_room(), family and family.rule.step > 0 and family.rule.burst or MAX_BATCH,
      own and own.step > 0 and own.burst or MAX_BATCH)
    return math.max(math.min((limit - batches + 1) * size, 200, math.max(most, 10)), 1)
  end

  -- Of these entries of ready the records, and for groups those of their first jobs and the heads of their lanes.
  local function read_front(members)
    local wanted, places, lanes, found = {}, {}, {}, {}
    for i, member in ipairs(members) do
      local name = sub(member, 18)
      if byte(member, 17) == 103 then -- 'g'
        lanes[i] = lane_head(q, name, size + 1)
        name = lanes[i][1] and sub(lanes[i][1], id_at(name))
      end
      if name then wanted[#wanted + 1], places[#wanted + 1] = name, i end
    end
    for i, rec in ipairs(#wanted > 0 and call('HMGET', q.jobs, unpack(wanted)) or {}) do found[places[i]] = rec end
    return found, lanes
  end

  -- Take entries of the front; gives the same as `start_job`.
  local function take_front(members)
    local found, lanes = read_front(members)
    for i, member in ipairs(members) do
      local go_on, stopped, again
      if lanes[i] then
        go_on, stopped, again = start_group(member, sub(member, 18), lanes[i], found[i])
      else
        go_on, stopped = start_job(member, sub(member, 18), found[i])
      end
      if not go_on then return false, stopped end
      if turn_lost or bound_reached() or aside > PROMOTE then break end
      if again and again < members[#members] then break end -- it comes before others of these
    end
    return true
  end

  local go_on, stopped = limit > 0, false
  while go_on and not bound_reached() and aside <= PROMOTE do
    local members, groups = call('ZRANGE', q.ready, 0, read_size() - 1), {}
    if #members == 0 then break end
    for _, member in ipairs(members) do
      if byte(member, 17) == 103 then groups[#groups + 1] = sub(member, 18) end -- 'g'
    end
    go_on, stopped = G.with_groups(q, groups, function() return take_front(members) end)
    leave_lanes()
    if #used > 0 then call('ZREM', q.ready, unpack(used)) end
    used = {}
    if turn_lost then restore_turns() end
  end
  -- Whether the next start must wait whatever its cost: then no other worker need come for it.
  if not stopped and #ids > 0 then
    stopped = is_full() or family and not rate_allows(family.gate, family.rule, 1, 'family')
      or own and not rate_allows(own_gate, own, 1, 'own') or false
  end
  if changed.family then G.store_family(family) end
  if changed.own then G.store_gate(q, '', own_gate) end
  return stopped, opens
end
