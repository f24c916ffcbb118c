-- Notices and what follows from them: dependencies are closed and opened again, jobs end, are resumed or suspended.
-- `notices()` gives the table of these helpers, which only jobs with a part in flows build.
--
-- An effect is {reference of the queue, id, generation, number, mode; name and id of the source, letter of its end or
-- false: open again, value or false, start of the keys of the family of the source}. Effects are applied at the end of the
-- transition of one job. What is left then, and all that concerns the children of a flow, goes to the outbox of the
-- family: a sorted set, by number, of msgpack: {'e', effect...} or {'c', kind, queue, id, generation, opening, mode, dropped,
-- after}.
function notices()
  if built_notices then return built_notices end
  local N = {}
  local UNMET_MS, EFFECT_COST = 604800000, 8000
  local CODES = { completed = 'c', failed = 'f', cancelled = 'x' }
  local F, find = flows(), string.find
  local parent, parent_name, parent_id -- of the last child that was put, as `N.living` gives it, until it may have changed

  -- The outbox ---------------------------------------------------------------------------------------

  local last_number = 0
  function N.send(start, message)
    local key = start .. 'outbox'
    local t, newest = call('TIME'), call('ZREVRANGE', key, 0, 0, 'WITHSCORES')
    last_number = math.max(last_number + 1, (tonumber(newest[2]) or 0) + 1, t[1] * 1000000 + t[2])
    message[#message + 1] = last_number
    call('ZADD', key, string.format('%.0f', last_number), spend(cmsgpack.pack(message)))
  end

  local function send_effect(effect)
    local message = { 'e' }
    for i = 1, 10 do message[i + 1] = effect[i] end
    N.send(effect[10], message)
  end

  local function send_cascade(q, id, g, kind, mode, dropped)
    N.send(family_start(q.prefix), { 'c', kind, F.ref_of(q), id, g.generation, g.opening, mode or 'refuse', dropped or false, -1 })
  end

  function N.add(q, notice, id, letter, value)
    effects = effects or {}
    effects[#effects + 1] = { notice[1], notice[2], notice[3], notice[4], notice[5], q.name, id, letter, value or false,
      family_start(q.prefix) }
  end

  -- Remove the parts of a queue that is deleted, and send the notices of its unfinished jobs as cancelled, by the outbox. Those
  -- of many jobs are set aside, for relay.
  function N.delete_all(q)
    local start = family_start(q.prefix)
    if call('HLEN', q.notices) > MAX_BATCH or call('HLEN', q.generations) > MAX_BATCH then
      local t = call('TIME')
      local aside = string.format('%sdeleted:%x.%x:', start, t[1], t[2])
      for _, name in ipairs({ 'notices', 'generations', 'ends' }) do
        if call('EXISTS', q[name]) == 1 then call('RENAME', q[name], aside .. name) end
      end
      return N.send(start, { 'd', aside, q.name, q.prefix })
    end
    local ids = call('HKEYS', q.notices)
    table.sort(ids)
    for _, id in ipairs(ids) do N.send_deleted(q, id, call('HGET', q.notices, id), q.ends) end
    for _, id in ipairs(call('HKEYS', q.generations)) do
      local g = F.load(q, id)
      if g.key ~= '' then F.drop_keys(q.prefix, g.key) end
    end
    call('UNLINK', q.generations, q.notices)
  end

  -- Send the notices of a job of a deleted queue, unless it had ended; gives how many.
  function N.send_deleted(q, id, list, ends)
    local twin = sub(id, -2) == BLOCKED_PART
    if not twin and call('HEXISTS', ends, id) == 1 then return 0 end
    local sent = F.read_notices(list)
    for _, notice in ipairs(sent) do N.add(q, notice, twin and sub(id, 1, -3) or id, 'x', false) end
    for _, effect in ipairs(effects or {}) do send_effect(effect) end
    effects = nil
    return #sent
  end

  -- Keep effects while jobs are put in the same transition: these come first.
  function N.hold()
    local held = effects
    effects = nil
    return held
  end
  function N.release(held) effects = held end

  -- Errors -------------------------------------------------------------------------------------------

  local KINDS = { permanent = true, retriable = true, stall = true, timeout = true, abandoned = true }

  -- The six elements of an error, as errors.py reads it.
  local function read_error(value)
    local done, e = pcall(cmsgpack.unpack, value)
    local good = done and type(e) == 'table' and #e >= 2
    for i = 1, good and math.min(#e, 6) or 0 do good = good and type(e[i]) == 'string' end
    if not good or e[3] and not KINDS[e[3]] then
      return { 'UnreadableError', #value .. ' bytes that are not an error record', 'permanent', '', '', '' }
    end
    return { e[1], e[2], e[3] or 'retriable', e[4] or '', e[5] or '', e[6] or '' }
  end

  local function error_of(kind, text) return cmsgpack.pack({ kind, text, 'permanent', '', '', '' }) end

  local function quoted(ref, id) return "'" .. id .. "' in '" .. F.name_of(ref) .. "'" end

  -- The first characters of a text.
  local function cut(text, count)
    if #text <= count then return text end
    local at = 1
    for _ = 1, count do at = (find(text, '[^\128-\191]', at + 1)) or #text + 1 end
    return sub(text, 1, at - 1)
  end

  -- The error of a job that is not run because of the end of another, as `unmet_error` in model/flow.py.
  local function unmet_error(ref, id, letter, value)
    if (letter == 'u' or letter == 's') and value then return value end
    local name = quoted(ref, id)
    if letter == 'c' or letter == 's' then return error_of('Skipped', 'it was not needed: ' .. name .. ' completed') end
    local text = name .. (letter == 'f' and ' failed' or ' was cancelled')
    if value then
      local e = read_error(value)
      text = text .. ': ' .. e[1] .. ': ' .. cut(e[2], 1024)
    end
    return error_of('UpstreamFailed', text)
  end

  local function flow_error(ref, id, value)
    if not value then return error_of('JobCancelled', quoted(ref, id) .. ' was cancelled') end
    local e = read_error(value)
    e[2] = quoted(ref, id) .. ': ' .. e[2]
    return cmsgpack.pack(e)
  end

  function N.dropped_error(ref, id, state)
    return error_of('FlowEnded', 'its flow ' .. quoted(ref, id) .. ' has ended: it is ' .. state)
  end

  -- Ends ---------------------------------------------------------------------------------------------

  -- Add the effects of the end of a job, and the message that cancels its unfinished children. `how` as for `finish`.
  function N.ended(q, id, how)
    local letter = how.letter or CODES[how.state]
    parent_name = nil
    local value = (how.state ~= 'cancelled' or how.value ~= '') and how.value
    for _, notice in ipairs(F.notices_of(q, id)) do N.add(q, notice, id, letter, value) end
    local g = F.load(q, id)
    if not g then return end
    g.ended, g.suspended, g.wake, g.wait, g.cancel, g.reviving = letter, false, false, false, false, false
    F.save(q, id, g)
    if g.open > 0 and (g.is_plan or g.total > g.needs) then send_cascade(q, id, g, 'cancel', how.mode) end
  end

  -- Send the notices of a blocked successor that goes, and remove its part.
  function N.gone(q, id)
    for _, notice in ipairs(F.notices_of(q, id .. BLOCKED_PART)) do N.add(q, notice, id, 'x', false) end
    F.forget(q, { id .. BLOCKED_PART })
  end

  -- Finish a suspended job without a run.
  local function finish_suspended(q, id, j, g, state, ttl, value, letter)
    leave(q, id, j)
    finish(q, id, { state = state, token = '', ttl = ttl, value = value, counted = 0, group = j.group,
      successor = g.durable, attempt = j.attempts, job = j, letter = letter })
  end
  N.finish_suspended = finish_suspended

  -- Conditions: how a notice with this mode is met by an end, and what it makes of a plan.
  local function is_met(mode, letter)
    local on = mode % 4
    if on >= 2 then return true end
    if on == 0 then return letter == 'c' end
    return letter ~= 'c' and letter ~= 's'
  end

  local function fatal_end(mode, letter)
    if letter == 'c' then return nil end
    if has(mode, 16) then return 1 end
    if has(mode, 8) or letter == 's' then return nil end
    return letter == 'f' and 1 or 2
  end

  -- The dependency that ends a job without a run, or nil: number and letter. One that makes it fail ends it at once, one
  -- that makes it superfluous when all others have ended.
  function N.verdict(q, g)
    if g.is_plan or g.harms == 0 then return nil end
    local first = call('ZRANGE', q.prefix .. 'harm:' .. g.key, 0, 0, 'WITHSCORES')
    if not first[1] then return nil end
    if floor(tonumber(first[2]) / HARM) == 4 and (not g.final or F.count_open(q, g, 0, g.needs) > 0) then return nil end
    local number = to_number(first[1])
    return number, F.state_of(q, g, number) or 'c'
  end

  local function evaluate_plan(q, id, j, g)
    local waits = g.open > 0 or not g.final
    if waits and not g.plan[2] then return end
    local first = g.harms > 0 and call('ZRANGE', q.prefix .. 'harm:' .. g.key, 0, 0, 'WITHSCORES') or {}
    local failed = first[1] and floor(tonumber(first[2]) / HARM) == 1
    if waits and not failed then return end
    if first[1] then
      local number = to_number(first[1])
      local ref, of = F.ref_at(q, g, number)
      local error = flow_error(ref, of, F.value_of(q, g, number))
      local ttl = g.plan[4] >= 0 and g.plan[4] or nil
      return finish_suspended(q, id, j, g, failed and 'failed' or 'cancelled', ttl, error)
    end
    local result = g.plan[1] >= 0 and g.key ~= '' and F.value_of(q, g, g.plan[1]) or g.plan[5]
    finish_suspended(q, id, j, g, 'completed', g.plan[3] >= 0 and g.plan[3] or nil, result)
  end

  -- End or resume a suspended job if its dependencies ask for it; `number` is the one that was closed.
  function N.evaluate(q, id, j, g, number)
    if not g.suspended or g.reviving then return end
    if g.plan then return evaluate_plan(q, id, j, g) end
    if not g.begun then
      local unmet, letter = N.verdict(q, g)
      if unmet then
        local ref, of = F.ref_at(q, g, unmet)
        local error = unmet_error(ref, of, letter, letter ~= 'c' and F.value_of(q, g, unmet) or nil)
        finish_suspended(q, id, j, g, 'cancelled', UNMET_MS, error, (letter == 'c' or letter == 's') and 's' or 'u')
      elseif g.final and g.waiting == 0 then
        F.resume(q, id, j, g)
      end
    elseif number and F.awaits(g, number) and g.waiting == 0 then
      F.resume(q, id, j, g)
    end
  end

  -- Effects ------------------------------------------------------------------------------------------

  -- A job that exists in a generation: its record, its end record or nil, its part or nil. Else nil.
  function N.living(q, id, generation)
    local j = parse(spend(call('HGET', q.jobs, id)))
    if not j then return nil end
    local ended = spend(call('HGET', q.ends, id)) or nil
    local expires = ended and select(3, parse_end(ended)) or 0
    if expires ~= 0 and expires <= now then return nil end
    local g = j.flow and F.load(q, id) or nil
    if (g and g.generation or F.plain_generation(j)) ~= generation then return nil end
    return j, ended, g
  end

  -- Close a dependency of a job, and do what follows from it.
  function N.close(q, id, j, g, ended, number, mode, letter, value)
    local state, culprit = F.state_of(q, g, number)
    if state ~= 'o' then return end
    g.closed = g.closed + 1
    F.count_end(g, letter, 1)
    F.set_state(q, g, number, letter, culprit)
    call('SETRANGE', q.prefix .. (number >= FOLLOW_UPS and 'modes+:' or 'modes:') .. g.key, number % FOLLOW_UPS, string.char(mode))
    local fatal, met = g.is_plan and fatal_end(mode, letter), is_met(mode, letter)
    if value and (has(mode, 4) or fatal or not met) then
      call('HSET', q.prefix .. 'journal:' .. g.key, 'v' .. string.format('%.0f', number), spend(value))
      g.bytes = g.bytes + #value
    end
    local harm = fatal
    if not g.is_plan and not met and number < g.needs then harm = (letter == 'c' or letter == 's') and 4 or 3 end
    if harm then
      g.harms = g.harms + call('ZADD', q.prefix .. 'harm:' .. g.key, harm * HARM + g.closed, string.format('%.0f', number))
    end
    if not ended and g.suspended and F.awaits(g, number) then g.waiting = g.waiting - 1 end
    g.changed = true -- until it is saved
    if not ended and g.suspended then N.evaluate(q, id, j, g, number) end
    if g.changed then F.save(q, id, g) end
  end

-- include: reopening

  local function apply_one(q, effect)
    local to = F.queue_of(q, effect[1])
    local j, ended, g = N.living(to, effect[2], effect[3])
    if not j then return end
    if not rawget(to, 'promoted') then
      promote(to)
      j, ended, g = N.living(to, effect[2], effect[3])
    end
    if not g then return end
    if effect[8] then
      N.close(to, effect[2], j, g, ended, effect[4], effect[5], effect[8], effect[9] or nil)
    else
      N.open_again(to, effect[2], j, g, ended, effect[4])
    end
  end

  -- Apply effects one after the other, those that they cause at the end; store the rest in the outbox.
  function N.apply(q)
    local todo, at = effects, 1
    effects, parent_name = nil, nil
    while at <= #todo and at <= MAX_EFFECTS do
      apply_one(q, todo[at])
      budget, at = budget - EFFECT_COST, at + 1
      for _, effect in ipairs(effects or {}) do todo[#todo + 1] = effect end
      effects = nil
    end
    for i = at, #todo do send_effect(todo[i]) end
  end

  -- Putting ------------------------------------------------------------------------------------------

  local function find_parent(q, ref)
    local name = ref[1] .. '\0' .. ref[2] .. '\0' .. ref[3]
    if name ~= parent_name then parent, parent_name, parent_id = { N.living(q, ref[2], ref[3]) }, name, ref[2] end
    return parent[1], parent[2], parent[3]
  end

  -- The answer to a put that its parent does not wait for, or nil.
  local function refuse_child(q, e)
    local ref = e.flow.parent
    if not ref then return nil end
    local of = F.queue_of(q, ref[1])
    local j, ended, g = find_parent(of, ref)
    if not j or ended then return { 'duplicate', 'cancelled' } end
    for _, notice in ipairs(e.flow.notices) do
      if notice[1] == ref[1] and notice[2] == ref[2] and notice[3] == ref[3] then
        local state = g and F.state_of(of, g, notice[4])
        if state ~= 'o' then return { 'duplicate', state == 'c' and 'completed' or state == 'f' and 'failed' or 'cancelled' } end
        return nil
      end
    end
  end

  -- Whether a new job with this part is suspended at first.
  function N.waits(part) return #part.dependencies > 0 or part.plan or part.open end

  -- Store the part of a new job; `id` has BLOCKED_PART behind it for a successor.
  function N.begin(q, id, j, part)
    local g = F.new(part.generation ~= '' and part.generation or F.plain_generation(j))
    g.parent, g.plan, g.is_plan, g.binds = part.parent, part.plan, part.plan and true, part.binds
    g.final, g.extended = not part.open, part.open and now
    g.needs = #part.dependencies
    g.total, g.waiting = g.needs, g.needs
    F.add_dependencies(q, g, j, 0, part.dependencies)
    F.save(q, id, g)
    F.add_notices(q, id, part.notices, true)
    return g
  end

  -- nothing -> suspended; a plan of nothing ends at once.
  function N.create(q, e, j)
    call('HSET', q.jobs, e.id, spend(note_length(q, build(j))))
    add_expiry(q, e.id, j)
    local g = N.begin(q, e.id, j, e.flow)
    F.suspend(q, e.id, j, g)
    if e.waiter then add_waiter(q, e.id, e.waiter) end
    emit('enqueued', q, e.id, 0)
    N.evaluate(q, e.id, j, g)
    return { 'suspended', g.suspended and 'suspended' or 'completed' }
  end

  -- Give the notices of a put whose id was taken to the job that it is about; they are sent at once if that has completed.
  local function join(q, e, answer)
    local status = answer[1]
    if status ~= 'updated' and status ~= 'duplicate' and status ~= 'completed' then return end
    local ended = spend(call('HGET', q.ends, e.id))
    local j = parse(spend(call('HGET', q.jobs, e.id)))
    if answer[2] == 'blocked' then
      F.add_notices(q, e.id .. BLOCKED_PART, e.flow.notices)
      local waiting = call('HGET', q.blocked, e.id) or ''
      local s = #e.flow.notices > 0 and parse(sub(waiting, 2))
      if s and not s.flow then
        s.flow = true
        call('HSET', q.blocked, e.id, sub(waiting, 1, 1) .. build(s))
      end
    elseif not j or status == 'completed' then
      local value = j and select(7, parse_end(ended or '')) or false
      for _, notice in ipairs(e.flow.notices) do N.add(q, notice, e.id, 'c', ended and value) end
    elseif #e.flow.notices > 0 then
      F.add_notices(q, e.id, e.flow.notices)
      local run = call('HGET', q.runs, e.id)
      F.mark(q, e.id, j, run and run_of(q, e.id, run))
    end
  end

  -- Put a job with a part in flows, and apply the effects of that.
  function N.put(q, e, seq)
    local answer = refuse_child(q, e)
    if answer then return answer end
    answer = put_one(q, e, seq)
    join(q, e, answer)
    if effects or parent_name and e.id == parent_id then parent_name = nil end
    if effects then N.apply(q) end
    return answer
  end

  built_notices = N
  return N
end
