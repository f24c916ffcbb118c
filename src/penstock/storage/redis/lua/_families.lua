    -- The limits of families, and the ends of runs that they wait for. A part of `_gates.lua`.

    -- Count the runs of a family again, queue by queue: the number was damaged.
    local function recount_family(key)
      local running = 0
      for _, field in ipairs(call('HKEYS', key)) do
        if byte(field, 1) == 110 then running = running + to_number(call('HGET', key, field)) end -- 'n'
      end
      call('HSET', key, 'running', running)
      return running
    end

    -- The limit of the family of a queue, or false.
    local function family_limit(q)
      local f = rawget(q, 'family_limit')
      if f == nil then
        f = false
        if has(limited_by(q), FAMILY) then
          local key = family_start(q.prefix) .. 'limit'
          local found = call('HMGET', key, 'rule', 'gate', 'running')
          local rule = read_rule(found[1])
          if rule then
            f = { key = key, rule = rule, gate = read_gate(found[2]) }
            f.running = to_number(found[3] or 0, false) or recount_family(key)
          end
        end
        q.family_limit = f
      end
      return f
    end
    G.family_limit = family_limit

    function G.store_family(f)
      if f.gate.tat > 0 then call('HSET', f.key, 'gate', build_gate(f.gate)) else call('HDEL', f.key, 'gate') end
    end

    -- Keep the number of a family's runs, after runs of this queue have begun or ended.
    local function count_runs(q)
      local f = family_limit(q)
      if not f then return end
      local name, count = 'n' .. q.name, call('HLEN', q.runs)
      local before = to_number(call('HGET', f.key, name) or 0, false)
      if count == before then return end
      if count == 0 then call('HDEL', f.key, name) else call('HSET', f.key, name, count) end
      f.running = before and add_to(f.key, 'running', count - before) or recount_family(f.key)
    end
    G.count_runs = count_runs

    -- The family is full: the queues that found it so are woken when a run ends.
    function G.wait_for_family(q)
      local start = family_start(q.prefix)
      call('ZADD', start .. 'waiting', now, sub(q.prefix, #start + 1))
      call('PEXPIRE', start .. 'waiting', WAKE_MS)
    end

    -- Runs of a queue have ended: a worker that found it or its family full may go on.
    function G.freed(q)
      local rule, f = rules_of(q).queue, family_limit(q)
      if (f or rule and rule.concurrency > 0) and call('EXISTS', q.ready) == 1 then wake(q) end
      if not f then return end
      count_runs(q)
      local start = family_start(q.prefix)
      local waiting = call('ZPOPMIN', start .. 'waiting', 16)
      for i = 1, #waiting, 2 do wake({ wake = start .. waiting[i] .. 'wake' }) end
    end

    -- Pause a group, or the queue (nil), until a retry is due; a pause that ends later stays.
    function G.pause_until(q, group, ends)
      if not group then
        local since, before = read_pause(call('HGET', q.meta, 'paused'))
        if since and before >= ends then return end
        pause_queue(q, ends, '')
        return wake_by(q, ends)
      end
      G.limit(q, OWN)
      local g = gate_of(q, group)
      if g.since and g.ends <= now then g.since = nil end
      if g.since and g.ends >= ends then return end
      g.since, g.ends, g.by = g.since or now, ends, ''
      store_gate(q, group, g)
      call('ZADD', q.ruled, 0, group)
    end

    -- Mark a queue as limited. The first time its runs are marked, so that their ends are noticed, and its held groups are
    -- closed.
    function G.limit(q, by)
      local before = limited_by(q)
      if has(before, by) then return end
      q.limited_by, q.rules, q.family_limit = before + by, nil, nil
      call('HSET', q.meta, 'limited', before + by)
      if before > 0 then return end
      each_run(q, function(id, run)
        local r = parse_run(run)
        if r and not r.limited then
          r.limited = true
          call('HSET', q.runs, id, build_run(r))
        end
      end)
      local held = call('HKEYS', q.holds)
      for at = 1, #held, PROMOTE do
        with_groups(q, { unpack(held, at, min(at + PROMOTE - 1, #held)) }, function()
          for i = at, min(at + PROMOTE - 1, #held) do
            local group = held[i]
            if group ~= '' and lane_head(q, group, '1')[1] then close(q, group, gate_of(q, group), FOREVER) end
          end
        end)
      end
    end

