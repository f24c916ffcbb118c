-- Changes of limits and pauses, for the scripts that make them.

local limits
do -- helpers of it alone, as above
  local function build_limits()
    local G, L = gates(), {}
    local NO_RULE = { step = 0 }

    -- A closed group whose rule or pause has changed is looked at by the next promotion.
    local function recheck(q, group)
      local g = G.gate_of(q, group)
      call('HSET', q.meta, 'changed', now)
      if not g.opens then return end
      local member = G.closed_member(g.opens, group)
      if call('ZREM', q.closed, member) == 1 then call('ZADD', q.recheck, 0, member) end
      wake(q)
    end

    -- A group is listed in `ruled` while it has a limit of its own or a pause.
    local function list(q, group, paused)
      if paused or call('HEXISTS', q.settings, 'g' .. group) == 1 then
        call('ZADD', q.ruled, 0, group)
      else
        call('ZREM', q.ruled, group)
      end
    end

    -- Pause a group until this time, or resume it (nil); true if that has changed anything.
    function L.pause_group(q, group, ends, by)
      if not ends and limited_by(q) == 0 then return false end
      G.limit(q, OWN)
      local g = G.gate_of(q, group)
      local since, old_ends, old_by = g.since, g.ends, g.by
      if since and old_ends <= now then since, old_ends, old_by = nil, nil, '' end
      g.since, g.ends, g.by = ends and (since or now), ends, ends and by or ''
      if g.since == since and g.ends == old_ends and g.by == old_by then return false end
      if ends then call('SADD', KEYS[2], q.name) end
      G.store_gate(q, group, g)
      list(q, group, ends)
      recheck(q, group)
      return true
    end

    -- Forget the rates of which all starts are paid, and the pauses that are over; a part of them in one call.
    local function forget_idle(q)
      local idle = call('ZRANGEBYSCORE', q.idle_gates, '-inf', now, 'LIMIT', 0, PROMOTE)
      if #idle == 0 then return end
      call('ZREM', q.idle_gates, unpack(idle))
      for _, group in ipairs(idle) do
        local g = G.gate_of(q, group)
        if g.stored then
          local rule = group == '' and (G.rules_of(q).queue or NO_RULE) or G.rule_of(q, group)
          if g.tat <= now * 1000 then
            G.meet(g, rule)
            if g.tat <= now * 1000 then g.tat, g.step, g.at = 0, 0, 0 end
          end
          if g.since and g.ends <= now then
            g.since, g.ends, g.by = nil, nil, ''
            list(q, group, false)
          end
          G.store_gate(q, group, g)
        end
      end
    end

    -- The state of the rate of a family is forgotten like those of its queues.
    local function forget_family(q)
      if not has(limited_by(q), FAMILY) then return end
      local key = family_start(q.prefix) .. 'limit'
      local found = call('HMGET', key, 'rule', 'gate')
      local rule, g = G.read_rule(found[1]), G.read_gate(found[2])
      if found[2] and g.tat <= now * 1000 then
        G.meet(g, rule or NO_RULE)
        if g.tat <= now * 1000 then
          call('HDEL', key, 'gate')
          found[2] = false
        else
          call('HSET', key, 'gate', G.build_gate(g))
        end
      end
      if not found[1] and not found[2] then
        call('HSET', q.meta, 'limited', limited_by(q) - FAMILY)
        q.limited_by = limited_by(q) - FAMILY
      end
    end

    -- A queue without limits and gates is not limited any more. Runs that are marked end as others do.
    function L.purge(q)
      if call('EXISTS', q.gates) == 1 then G.repair_gates(q, 100) end
      forget_idle(q)
      forget_family(q)
      G.count_runs(q)
      if not has(limited_by(q), FAMILY) and call('EXISTS', q.settings, q.limits, q.gates, q.closed, q.recheck) == 0 then
        call('HDEL', q.meta, 'limited', 'changed', 'looked')
        call('DEL', q.idle_gates, q.ruled)
        q.limited_by = 0
      end
    end

    -- A queue was deleted: its limits remain, and its family has no runs of it.
    function L.forget(q)
      G.freed(q)
      if call('EXISTS', q.settings) == 1 then
        call('HSET', q.meta, 'limited', OWN + (has(limited_by(q), SINGLE) and SINGLE or 0))
        for _, field in ipairs(call('HKEYS', q.settings)) do
          if #field > 1 then call('ZADD', q.ruled, 0, sub(field, 2)) end
        end
      end
    end

    -- The version of a limit's settings, 0 if there are none.
    local function version_of(record) return record and #record >= 6 and unpack_head('>I6', record) or 0 end

    -- Store a rule ('' for none), with the time of its change, and its settings; gives their version.
    local function store(rules_key, rule_field, settings_key, field, packed, settings, version)
      if packed == '' then
        call('HDEL', rules_key, rule_field)
      else
        call('HSET', rules_key, rule_field, sub(packed, 1, -9) .. pack('>I8', now))
      end
      if packed == '' and settings == '' then
        call('HDEL', settings_key, field)
        return 0
      end
      call('HSET', settings_key, field, pack('>I6', version + 1) .. settings)
      return version + 1
    end

    -- Set the limit of a queue (field ''), of every group ('g') or of one group ('g' and its name) if its version is the one
    -- given. Gives the new version, 0 if it was removed, -1 for another version, nil to be called again.
    function L.set(q, field, packed, settings, version)
      if version_of(call('HGET', q.settings, field)) ~= version then return -1 end
      if promote(q) then return nil end
      if packed ~= '' or settings ~= '' then
        call('SADD', KEYS[2], q.name)
        G.limit(q, OWN)
        if #field > 1 then G.limit(q, SINGLE) end
      end
      local answer = store(q.limits, field, q.settings, field, packed, settings, version)
      q.rules = nil
      if field == 'g' then
        G.recheck_all(q)
      elseif field ~= '' then
        local group = sub(field, 2)
        local g = G.gate_of(q, group)
        list(q, group, g.since and g.ends > now)
        recheck(q, group)
      end
      if call('EXISTS', q.ready, q.closed, q.recheck) > 0 then wake(q) end
      return answer
    end

    -- Mark these queues as limited by their family, and count their runs.
    local function mark(queues)
      for _, q in ipairs(queues) do
        G.limit(q, FAMILY)
        G.count_runs(q)
        if call('EXISTS', q.ready) == 1 then wake(q) end
      end
    end
    L.mark = mark

    -- The runs of a family without a limit are not counted.
    local function forget_runs(key)
      local fields = { 'running' }
      for _, field in ipairs(call('HKEYS', key)) do
        if byte(field, 1) == 110 then fields[#fields + 1] = field end -- 'n'
      end
      for at = 1, #fields, PROMOTE do call('HDEL', key, unpack(fields, at, math.min(at + PROMOTE - 1, #fields))) end
    end

    -- The same for a family, whose queues are given.
    function L.set_family(key, queues, packed, settings, version)
      local known = call('HMGET', key, 'settings', 'rule')
      if version_of(known[1]) ~= version then return -1 end
      if packed == '' or not known[2] then forget_runs(key) end
      local answer = store(key, 'rule', key, 'settings', packed, settings, version)
      if packed ~= '' then
        mark(queues)
      else
        for _, q in ipairs(queues) do
          if call('EXISTS', q.ready) == 1 then wake(q) end
        end
      end
      if answer == 0 then call('DEL', key) end
      return answer
    end
    return L
  end

  local built
  function limits()
    built = built or build_limits()
    return built
  end
end
