-- The messages of outboxes: notices, and what a flow that has ended or was revived makes of its children.
local relay_all
do -- helpers of it alone: a script has at most 200 local variables at once
  local ABANDONED_MS, UNMET_MS, AT_ONCE = 60000, 604800000, 100
  local ABANDONED = cmsgpack.pack({ 'Abandoned', 'its producer stopped before it had stored all of it', 'abandoned', '', '', '' })
  local F, N = flows(), notices()
  local PATTERNS = { cancel = '[oO]', plan = '[fxdFXD]', dropped = '[dD]', run = '%u' }

  -- The oldest message of these outboxes: key, the message as it is stored, its content; nil if there is none. One that
  -- cannot be read goes.
  local function first_message(q, starts)
    local found
    for _, start in ipairs(starts) do
      local first = call('ZRANGE', start .. 'outbox', 0, 0, 'WITHSCORES')
      if first[1] and (not found or tonumber(first[2]) < found[3]) then found = { start .. 'outbox', first[1], tonumber(first[2]) } end
    end
    if not found then return nil end
    local done, message = pcall(cmsgpack.unpack, found[2])
    if done and type(message) == 'table' and (message[1] == 'e' and #message >= 11 or message[1] == 'c' and #message >= 9
      or message[1] == 'd' and #message >= 4) then
      return found, message
    end
    call('ZREM', found[1], found[2])
    damaged(q, 1)
    return first_message(q, starts)
  end

  -- Fail the open flows whose producers were silent for too long.
  local function abandon(q, starts)
    local late, count = {}, 0
    for _, start in ipairs(starts) do
      local key = start .. 'open_flows'
      local found = call('ZRANGEBYSCORE', key, '-inf', now - ABANDONED_MS, 'WITHSCORES', 'LIMIT', 0, AT_ONCE)
      for i = 1, #found, 2 do late[#late + 1] = { key, found[i], tonumber(found[i + 1]) } end
    end
    table.sort(late, function(a, b) return a[3] < b[3] or a[3] == b[3] and a[2] < b[2] end)
    for _, each in ipairs(late) do
      call('ZREM', each[1], each[2])
      local ref, id = string.match(each[2], '^(.-)%z([^%z]*)$')
      local of = ref and F.queue_of(q, ref)
      local g = of and F.load(of, id)
      if g and g.suspended and not g.final then
        count = count + 1
        promote(of)
        local j = parse(call('HGET', of.jobs, id))
        if j and g.suspended then
          N.finish_suspended(of, id, j, g, 'failed', UNMET_MS, ABANDONED)
          if effects then N.apply(of) end
        end
      end
    end
    return count
  end

  -- Cancel a child whose flow has ended, unless another made it.
  local function drop_child(q, m, ended, ref, id, channels)
    local of = F.queue_of(q, ref)
    local g = F.load(of, id)
    if call('HEXISTS', of.ends, id) == 1 or not g or not g.parent then return end
    if g.parent[1] ~= m[3] or g.parent[2] ~= m[4] or g.parent[3] ~= m[5] then return end
    promote(of)
    cancel_one(of, id, CANCEL[m[7]] or 0, UNMET_MS, channels,
      { letter = 'd', value = N.dropped_error(m[3], m[4], (parse_end(ended))) })
  end

  -- Revive a child of a revived flow; one that is gone counts as failed again.
  local function revive_child(q, m, j, g, number, ref, id)
    local of = F.queue_of(q, ref)
    local state, culprit = F.state_of(q, g, number)
    local mode = F.mode_of(q, g, number)
    if culprit then F.set_state(q, g, number, state) end
    local c = parse(spend(call('HGET', of.jobs, id)))
    local ended = c and call('HGET', of.ends, id)
    local expires = ended and select(3, parse_end(ended)) or 0
    if not c or expires ~= 0 and expires <= now then
      if culprit then N.close(q, m[4], j, g, nil, number, mode, 'f', nil) end
      return
    end
    promote(of)
    c, ended = parse(call('HGET', of.jobs, id)), call('HGET', of.ends, id)
    local notice = { m[3], m[4], m[5], number, mode }
    local child_state = ended and parse_end(ended)
    if not ended or child_state == 'completed' then
      if state ~= 'o' then
        F.open_again(q, g, number, state)
        if F.awaits(g, number) then g.waiting = g.waiting + 1 end
        F.save(q, m[4], g)
      end
      if ended then
        return N.close(q, m[4], j, g, nil, number, mode, 'c', (select(7, parse_end(ended))))
      end
    end
    F.add_notices(of, id, { notice })
    local run = call('HGET', of.runs, id)
    F.mark(of, id, c, run and run_of(of, id, run))
    if ended and revive_one(of, id, false, false) == 0 and culprit then
      local mine, value = F.load(of, id), select(7, parse_end(ended))
      N.close(q, m[4], j, g, nil, number, mode, mine and mine.ended or 'f', (child_state == 'failed' or value ~= '') and value or nil)
    end
  end

  -- Cancel or revive some children of a flow; gives how many were looked at, and whether all were. `m` is the message:
  -- kind 2, queue 3, id 4, generation 5, opening 6, mode 7, dropped 8, after 9.
  local function cascade(main, m, limit, channels)
    local q, steps = F.queue_of(main, m[3]), 0
    while true do
      local j, ended, g = N.living(q, m[4], m[5])
      if not g or g.opening ~= m[6] or (ended ~= nil) ~= (m[2] == 'cancel') then return steps, true end
      local pattern, after = PATTERNS.cancel, m[9]
      if m[2] == 'cancel' then
        if not g.is_plan then after = math.max(after, g.needs - 1) end
      else
        pattern = not g.is_plan and PATTERNS.run or m[8] and PATTERNS.dropped or PATTERNS.plan
      end
      local number = F.next(q, g, pattern, after, 2 * FOLLOW_UPS)
      if not number then
        if m[2] == 'revive' then
          g.reviving = false
          F.save(q, m[4], g)
          N.evaluate(q, m[4], j, g)
          if effects then N.apply(q) end
        end
        return steps, true
      end
      if steps >= limit or budget <= 0 then return steps, false end
      steps, m[9], budget = steps + 1, number, budget - 12000
      local ref, id = F.ref_at(q, g, number)
      if ref ~= '' then
        if m[2] == 'cancel' then drop_child(q, m, ended, ref, id, channels) else revive_child(q, m, j, g, number, ref, id) end
      end
      if effects then N.apply(q) end
    end
  end

  -- Go on with what a deleted queue has left: its notices become messages, and the keys of its jobs go. True at the end.
  local function drain(q, m)
    local aside, of = m[2], queue_at(m[4], m[3])
    for _, id in ipairs(call('HRANDFIELD', aside .. 'notices', AT_ONCE)) do
      N.send_deleted(of, id, call('HGET', aside .. 'notices', id), aside .. 'ends')
      call('HDEL', aside .. 'notices', id)
      budget = budget - 4000
    end
    for _, id in ipairs(call('HRANDFIELD', aside .. 'generations', AT_ONCE)) do
      local g = F.load(setmetatable({ generations = aside .. 'generations' }, {}), id)
      if g and g.key ~= '' then F.drop_keys(m[4], g.key) end
      call('HDEL', aside .. 'generations', id)
      budget = budget - 1000
    end
    if call('EXISTS', aside .. 'notices', aside .. 'generations') > 0 then return false end
    call('UNLINK', aside .. 'ends')
    return true
  end

  function relay_all(q, limit, first, channels, starts)
    local applied = first and abandon(q, starts) or 0
    while applied < limit and budget > 0 do
      local found, m = first_message(q, starts)
      if not found then break end
      local key, stored = found[1], found[2]
      if m[1] == 'e' then
        call('ZREM', key, stored)
        effects = { { unpack(m, 2, 11) } }
        N.apply(q)
        applied = applied + 1
      elseif m[1] == 'd' then
        if drain(q, m) then call('ZREM', key, stored) end
      else
        local steps, done = cascade(q, m, limit - applied, channels)
        applied = applied + steps
        call('ZREM', key, stored)
        if not done then call('ZADD', key, string.format('%.0f', found[3]), cmsgpack.pack(m)) end
      end
    end
    return { applied, first_message(q, starts) and 1 or 0, applied < limit and budget <= 0 and 1 or 0 }
  end
end
