-- Limits: rules, gates, and the groups whose gates are closed. Only a queue with limits builds these helpers: `gates()`
-- gives the table of them. model/gate.py has the same arithmetic, tests/model_limits.py the same decisions.
--
-- rule:         concurrency (0: any), step of the rate in us (0: none), burst, by cost, weight, ordered, its change in ms
-- gate record:  flags, tat, step and at of the rate in us, starts used of the weight, since and end of a pause in ms, when
--               a closed group opens in ms, kept turn (12 bytes), by whom it is paused

-- The pause of a queue in `paused` of meta: since, end (FOREVER: none), by whom; nil if there is none or it is over. A
-- damaged one has no end.
local function read_pause(text)
  if not text then return nil end
  local since, ends, by = string.match(text, '^(%d+) (%d+) (.*)$')
  since, ends = to_number(since), to_number(ends, FOREVER)
  if ends <= now then return nil end
  return since, ends, by or ''
end

-- The same of a group, by its gate record.
local function read_group_pause(record)
  if not record or #record < 59 or byte(record, 1) > 7 or not has(byte(record, 1), 2) then return nil end
  local since, ends = unpack_head('>I6I6', record, 30)
  if ends <= now then return nil end
  return since, ends, sub(record, 60)
end

-- Pause a queue; true if that is another pause than before.
local function pause_queue(q, ends, by)
  local before = call('HGET', q.meta, 'paused')
  local pause = string.format('%.0f %.0f ', read_pause(before) or now, ends) .. by
  call('SADD', KEYS[2], q.name)
  call('HSET', q.meta, 'paused', pause)
  return pause ~= before
end

local gates
do -- helpers of it alone: a script has at most 200 local variables at once
  local function build_gates()
    local G = {}
    local RULE, RULE_SIZE = '>I4I8I4BI4BI8', 30
    local GATE, GATE_SIZE, TURN_SIZE = '>BI8I8I8I4I6I6I6', 59, 12
    local KEPT, PAUSED, CLOSED = 1, 2, 4
    local LATEST = 9007199254740991
    local DEFAULT = { concurrency = 1, step = 0, burst = 1, by_cost = false, weight = 1, ordered = true, changed = 0,
      packed = pack(RULE, 1, 0, 1, 0, 1, 1, 0) }
    local now_us = now * 1000
    local max, min, ceil = math.max, math.min, math.ceil

    -- A time in ms from one in us, rounded up; exact, as a division by 1000 is not.
    local function to_ms(us)
      local rest = math.fmod(us, 1000)
      return (us - rest) / 1000 + (rest > 0 and 1 or 0)
    end

    -- Rules --------------------------------------------------------------------------------------------

    -- A rule, or nil if there is none, or a damaged one.
    local function read_rule(packed)
      if not packed or #packed ~= RULE_SIZE then return nil end
      local r, by_cost, ordered = {}
      r.concurrency, r.step, r.burst, by_cost, r.weight, ordered, r.changed = unpack_head(RULE, packed)
      if r.step > LATEST or r.changed > FOREVER or r.burst < 1 or r.weight < 1 then return nil end
      r.by_cost, r.ordered, r.packed = by_cost ~= 0, ordered ~= 0, packed
      return r
    end

    -- The rules of the queue (`queue`) and of every group (`groups`), which may be nil.
    local function rules_of(q)
      local rules = rawget(q, 'rules')
      if not rules then
        rules = { single = {} }
        if limited_by(q) ~= FAMILY then
          local both = call('HMGET', q.limits, '', 'g')
          rules.queue, rules.groups = read_rule(both[1]), read_rule(both[2])
        end
        q.rules = rules
      end
      return rules
    end

    local function rule_of(q, group)
      local rules = rules_of(q)
      local own = rules.single[group]
      if own == nil then
        own = has(limited_by(q), SINGLE) and read_rule(call('HGET', q.limits, 'g' .. group)) or false
        rules.single[group] = own
      end
      return own or rules.groups or DEFAULT
    end

    -- Gates --------------------------------------------------------------------------------------------

    -- The gate of a record. Without a record, or with a damaged one, it is new.
    local function read_gate(record)
      local g = { tat = 0, step = 0, at = 0, used = 0, by = '', stored = record and true or false }
      g.written = g.stored
      if not record or #record < GATE_SIZE or byte(record, 1) > KEPT + PAUSED + CLOSED then return g end
      local flags, since, ends, opens
      flags, g.tat, g.step, g.at, g.used, since, ends, opens = unpack_head(GATE, record)
      if max(g.tat, g.step, g.at) > LATEST then g.tat, g.step, g.at = 0, 0, 0 end
      if has(flags, KEPT) then g.turn = PLAIN_RANK .. sub(record, GATE_SIZE - TURN_SIZE + 1, GATE_SIZE) end
      if has(flags, PAUSED) then g.since, g.ends, g.by = since, ends, sub(record, GATE_SIZE + 1) end
      if has(flags, CLOSED) then g.opens = opens end
      return g
    end

    local function build_gate(g)
      local flags = (g.turn and KEPT or 0) + (g.since and PAUSED or 0) + (g.opens and CLOSED or 0)
      return pack(GATE, flags, g.tat, g.step, g.at, g.used, g.since or 0, g.ends or 0, g.opens or 0)
        .. (g.turn and sub(g.turn, 5) or string.rep('\0', TURN_SIZE)) .. g.by
    end

    -- Gates are read once in a script.
    local function gates_known(q)
      local known = rawget(q, 'known_gates')
      if not known then
        known = {}
        q.known_gates = known
      end
      return known
    end

    local function gate_of(q, group)
      local known = gates_known(q)
      local g = known[group]
      if not g then
        g = read_gate(call('HGET', q.gates, group))
        known[group] = g
      end
      return g
    end

    -- When a part of a gate can be forgotten: its rate is paid, or its pause over.
    local function idle_at(g) return min(g.tat > 0 and to_ms(g.tat) or FOREVER, g.since and g.ends or FOREVER) end

    -- Store gates, or remove those that are as new. One of which a part can be forgotten later is in `idle_gates`.
    local function write_gates(q, changed)
      local gone, kept, idle = {}, {}, {}
      for group, g in pairs(changed) do
        if g.stored then
          kept[#kept + 1], kept[#kept + 2] = group, build_gate(g)
          local at = idle_at(g)
          if at < FOREVER then idle[#idle + 1], idle[#idle + 2] = at, group end
        elseif g.written then
          gone[#gone + 1] = group
        end
        g.written = g.stored
      end
      if #gone > 0 then call('HDEL', q.gates, unpack(gone)) end
      if #kept > 0 then call('HSET', q.gates, unpack(kept)) end
      if #idle > 0 then call('ZADD', q.idle_gates, unpack(idle)) end
    end
-- include: group_batch

    -- Store a gate, or remove it if it is as new.
    local function store_gate(q, group, g)
      g.stored = g.tat > 0 or g.used > 0 or (g.turn or g.since or g.opens) and true or false
      if batch then batch.gates[group] = g else write_gates(q, { [group] = g }) end
    end

    -- The state of a rate that holds now: after a clock that was set back, and after a change of the step.
    local function current(g, rule)
      local tat, step, at = g.tat, g.step, g.at
      if now_us < at then
        tat = max(tat - (at - now_us), 0)
        at = now_us
      end
      if step ~= 0 and rule.step ~= 0 and step ~= rule.step then
        local since = max(at, min(rule.changed * 1000, now_us))
        if tat > since then
          local starts = (tat - since) / step
          tat = min(since + ceil(starts * rule.step), LATEST)
        end
        step, at = rule.step, since -- the next change counts from here, also one back to an older rule
      end
      return tat, step, at
    end

    local function price_of(rule, cost) return rule.by_cost and cost or 1 end

    -- When a rate allows a start of this cost, in ms, rounded up; now if it does already.
    local function rate_opens(g, rule, cost)
      if rule.step == 0 then return now end
      local saved = (rule.burst - min(price_of(rule, cost), rule.burst)) * rule.step
      return max(to_ms(max(current(g, rule) - saved, 0)), now)
    end

    -- Keep the current state of a rate that was looked at; true if that has changed it.
    local function meet(g, rule)
      local tat, step, at = current(g, rule)
      if tat == g.tat and step == g.step and at == g.at then return false end
      g.tat, g.step, g.at = tat, step, at
      return true
    end

    -- Charge a start of this cost; true if there is a rate.
    local function charge(g, rule, cost)
      if rule.step == 0 then return false end
      local tat = max(current(g, rule), now_us) + price_of(rule, cost) * rule.step
      g.tat, g.step, g.at = min(tat, LATEST), rule.step, now_us
      return true
    end

    -- Groups -------------------------------------------------------------------------------------------

    -- How many jobs of a group run, and how many hold it: those that wait for a retry do too.
    local function runs_of_group(q, group)
      local held = batch and batch.holds[group]
      if not held then held = to_number(call('HGET', q.holds, group) or 0, false) or recount_holds(q, group) end
      if held == 0 then return 0, 0 end
      if rawget(q, 'has_backoffs') == nil then q.has_backoffs = call('EXISTS', q.backoffs) == 1 end
      if not q.has_backoffs then return held, held end
      local prefix = lane_prefix(group)
      return held - call('ZLEXCOUNT', q.backoffs, '[' .. prefix, '(' .. prefix .. '\255'), held
    end

    -- Whether a group may have another run: not while it is full or held.
    local function has_room(rule, running, held)
      if rule.ordered then return held == 0 end
      return running < max(rule.concurrency, 1)
    end

    -- The cost of the first job of a group.
    local function cost_at(q, group, head)
      local rec = call('HGET', q.jobs, sub(head, id_at(group)))
      return format_of(rec) > 0 and cost_of(rec) or 1
    end

    -- When the pause and the rate of a group let its first job start, in ms: now if they do, FOREVER if that takes an event.
    -- `head` is its member of `lanes`. True follows if the gate has changed and must be stored.
    local function time_of(q, group, g, rule, head)
      local opens, changed = now, false
      if g.since then
        if g.ends == FOREVER then return FOREVER, false end
        if g.ends > now then opens = g.ends else g.since, g.ends, g.by, changed = nil, nil, '', true end
      end
      if g.tat > 0 then changed = meet(g, rule) or changed end
      if rule.step == 0 then return opens, changed end
      return max(opens, rate_opens(g, rule, rule.by_cost and cost_at(q, group, head) or 1)), changed
    end

    -- The same of a group that may be full or held.
    local function opens_at(q, group, g, rule, head)
      if not has_room(rule, runs_of_group(q, group)) then return FOREVER, false end
      return time_of(q, group, g, rule, head)
    end

    local function closed_member(opens, group) return pack('>I6', opens) .. group end

    -- Take a group of a batch out of `closed` or `recheck`; the caller stores the gate if it gives true.
    local function leave_closed(q, group, g)
      if not g.opens then return false end
      local member = closed_member(g.opens, group)
      if batch.closed[member] then batch.closed[member] = nil else batch.left[#batch.left + 1] = member end
      g.opens = nil
      return true
    end

    -- Put a group with jobs, of a batch, among the closed ones. `looked` in meta is when a group was last closed until a time.
    local function close(q, group, g, opens)
      local member = closed_member(opens, group)
      if g.opens ~= opens or not batch.closed[member] and not call('ZSCORE', q.closed, member) then
        leave_closed(q, group, g)
        g.opens = opens
        batch.closed[member] = true
      end
      store_gate(q, group, g)
      if opens < FOREVER then batch.opens = min(batch.opens or opens, opens) end
    end

    -- `ended`: only a run has ended, so that a group in the rotation or among the closed ones still has jobs.
    local function look_in_batch(q, group, turn, ended)
      local member, g, rule, changed = turn_now(q, group), gate_of(q, group), rule_of(q, group), false
      local head = ended and (member or g.opens) and not rule.by_cost or lane_head(q, group, '1')[1]
      if not head then
        if member then set_turn(group, nil) end
        changed = leave_closed(q, group, g)
        if changed or g.turn or g.used > 0 then
          g.turn, g.used = nil, 0
          store_gate(q, group, g)
        end
        return
      end
      local opens, looked = opens_at(q, group, g, rule, head)
      if opens > now then
        if member then set_turn(group, nil) end
        return close(q, group, g, opens)
      end
      if not member then
        changed = leave_closed(q, group, g)
        set_turn(group, (g.turn or turn or rank(0, now, batch_seq(q))) .. 'g' .. group)
        wake(q)
      end
      if changed or looked then store_gate(q, group, g) end
    end

    -- As `regroup`, for a queue with limits: a group with jobs is in the rotation if it may start one, else closed. Its gate
    -- is stored if it has changed.
    local function look_at(q, group, turn)
      with_groups(q, { group }, function() look_in_batch(q, group, turn) end)
    end

    -- The turn of a group whose gate opened at this time: that, and the number of its first job.
    local function turn_at(group, time, head)
      local at = id_at(group)
      return PLAIN_RANK .. pack('>I6', time) .. sub(head, at - 6, at - 1)
    end

    -- Look at these closed groups, at the members of a set; the time of each turn is that of its member, or the one given.
    local function look_again(q, set, members, time)
      local groups = {}
      for i, member in ipairs(members) do groups[i] = sub(member, 7) end
      with_groups(q, groups, function()
        for i, member in ipairs(members) do
          local group = groups[i]
          local g, head = gate_of(q, group), lane_head(q, group, '1')[1]
          if not head or closed_member(g.opens or 0, group) ~= member then -- it is damaged: perhaps that of another group
            damaged(q, 1)
            call('ZREM', set, member)
            q.lost_gates = true
          end
          look_in_batch(q, group, head and #member > 6 and turn_at(group, time or unpack_head('>I6', member), head))
        end
      end)
      return #members == PROMOTE
    end

    -- Put back what is missing in `closed` and `idle_gates`, by the gates: members were damaged. Of many gates a random part
    -- is looked at, so that each is found in time and no call reads all.
    local function repair_gates(q, part)
      q.lost_gates = false
      local found = call('HRANDFIELD', q.gates, part, 'WITHVALUES')
      for i = 1, #found, 2 do
        local group, g = found[i], read_gate(found[i + 1])
        local member, idle = closed_member(g.opens or 0, group), idle_at(g)
        if g.opens and not call('ZSCORE', q.closed, member) and not call('ZSCORE', q.recheck, member) then
          damaged(q, 1)
          call('ZADD', q.recheck, 0, member)
        end
        if idle < FOREVER and call('ZADD', q.idle_gates, 'NX', idle, group) == 1 then damaged(q, 1) end
      end
    end

    -- All closed groups are looked at again by the next promotions: their rule has changed, or the clock was set back.
    local function recheck_all(q)
      call('HSET', q.meta, 'changed', now)
      if call('EXISTS', q.closed) == 0 then return end
      if call('EXISTS', q.recheck) == 1 then
        call('ZUNIONSTORE', q.recheck, 2, q.recheck, q.closed)
        call('DEL', q.closed)
      else
        call('RENAME', q.closed, q.recheck)
      end
    end

    -- Groups have got jobs: each takes the turn given if it may and has none. Or else (nil) runs of them have ended, in this
    -- order.
    function G.look_at_all(q, groups, turns)
      with_groups(q, groups, function()
        for i, group in ipairs(groups) do
          if not turns then hold_now(group, -1) end
          look_in_batch(q, group, turns and turns[i], not turns)
        end
      end)
    end

    -- Look at the closed groups that have changed, and at those whose time has come; true when there may be more.
    local function open_gates(q)
      local times = call('HMGET', q.meta, 'looked', 'changed')
      if now < to_number(times[1]) then -- the clock was set back, and rates go back with it
        call('HSET', q.meta, 'looked', now)
        recheck_all(q)
        times[2] = now
      end
      local changed = call('ZRANGE', q.recheck, 0, PROMOTE - 1)
      local more = #changed > 0 and look_again(q, q.recheck, changed, to_number(times[2]))
      local due = call('ZRANGEBYLEX', q.closed, '-', '(' .. pack('>I6', now + 1), 'LIMIT', 0, PROMOTE)
      more = #due > 0 and look_again(q, q.closed, due) or more
      if rawget(q, 'lost_gates') then repair_gates(q, PROMOTE) end
      return more
    end
-- include: families
    G.read_rule, G.rules_of, G.rule_of, G.read_gate, G.build_gate = read_rule, rules_of, rule_of, read_gate, build_gate
    G.gate_of, G.store_gate, G.rate_opens, G.meet, G.charge, G.current = gate_of, store_gate, rate_opens, meet, charge, current
    G.opens_at, G.close, G.look_at, G.open_gates, G.runs_of_group = opens_at, close, look_at, open_gates, runs_of_group
    G.repair_gates, G.recheck_all, G.closed_member, G.cost_at = repair_gates, recheck_all, closed_member, cost_at
    G.has_room, G.time_of = has_room, time_of
    return G
  end

  local built
  function gates()
    built = built or build_gates()
    return built
  end
end
