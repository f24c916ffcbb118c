-- Statistics of a queue: the body of its sample of this moment.
-- include: counts ring
local stats = {}
do -- helpers of it alone: a script has at most 200 local variables at once
  local TOTALS = { 'finished', 'failed', 'cancelled', 'retried', 'stalled', 'timed_out' }

  -- The totals of a queue since it was created, or since it was forgotten.
  function stats.totals(q)
    local totals = call('HMGET', q.meta, unpack(TOTALS))
    for i = 1, #TOTALS do totals[i] = to_number(totals[i]) end
    return totals
  end

  -- How long the next job of a queue has been due, whether or not it is paused or limited; -1 if there is none.
  function stats.oldest(q)
    local first = call('ZRANGE', q.ready, 0, 0)[1]
    if not first then return -1 end
    local id = sub(first, 18)
    if byte(first, 17) == 103 then -- 'g'
      local head = lane_head(q, id, '1')[1]
      id = head and sub(head, id_at(id))
    end
    local j = id and parse(call('HGET', q.jobs, id))
    return j and math.max(now - j.due, 0) or -1
  end

  function stats.sample(q)
    local base = ring.read_totals(call('HGET', q.history, 'b'))
    local times = ring.read_times(redis.pcall('GET', q.stats))
    return { counts_of(q), ring.add(stats.totals(q), base, 1), stats.oldest(q), times[1], times[2], times[3], times[4] }
  end
end
