-- The parts of jobs in flows: records, dependencies, checkpoints and signals. Only a job with such a part builds these
-- helpers: its record has the flag FLOW. `flows()` gives the table of them. tests/model_flows.py has the meaning.
--
-- generations:  msgpack, a list of generation, flags, then FIELDS, without trailing defaults
-- Each job with dependencies, checkpoints or signals has keys of its own, whose names end in `key` of its record; one is
-- used once, so that what a deleted queue leaves can be removed later:
-- deps:         a byte for each dependency: o for an open one, else the letter of its end; a capital for a culprit
-- modes:        a byte for each: how its notice closed it
-- refs:         list: length and reference of the queue, id of each
-- deps+, modes+, refs+: the same of the follow-up jobs of the children of a plan
-- harm:         sorted set number -> how it harms * 2^40 + the number of its end, of those that end the job
-- journal:      hash c + name -> number, kind and value of a checkpoint; v + number -> value of a dependency;
--               s + number -> value of an unread signal
-- order:        list: the names of the checkpoints
-- signals:      list: number and name of each unread signal
--
-- The reference of a queue is its name, and after NUL the start of its keys where that does not follow from the name.
function flows()
  if built_flows then return built_flows end
  local F = {}
  local FIELDS = { 'parent', 'plan', 'binds', 'fresh', 'needs', 'total', 'adopted', 'closed', 'opening', 'waiting', 'first',
    'count', 'wait', 'cancel', 'ended', 'open', 'ends', 'extended', 'key', 'wake', 'bytes', 'signals', 'harms' }
  local TABLES, TEXTS = { parent = true, plan = true, wait = true, ends = true }, { binds = true, key = true, ended = true }
  local OPTIONAL = { cancel = true, ended = true, extended = true, wake = true }
  local FLAGS = { 'is_plan', 'final', 'begun', 'durable', 'reviving', 'suspended' }
  local OWN_KEYS = { 'deps:', 'modes:', 'refs:', 'deps+:', 'modes+:', 'refs+:', 'harm:', 'journal:', 'order:', 'signals:' }
  local ENDS, CHUNK = 'cfxusd', 65536 -- completed, failed, cancelled, upstream, skipped, dropped
  local find, min = string.find, math.min
  local function number_text(number) return string.format('%.0f', number) end

  -- Records ------------------------------------------------------------------------------------------

  local DEFAULTS = {}
  for _, name in ipairs(FIELDS) do
    DEFAULTS[name] = 0
    if TEXTS[name] then DEFAULTS[name] = '' end
    if TABLES[name] or OPTIONAL[name] then DEFAULTS[name] = false end
  end

  local function all_are(list, kind, count)
    for i = 1, count do
      if type(list[i]) ~= kind then return false end
    end
    return true
  end

  local function fits(name, value)
    if value == DEFAULTS[name] then return true end
    if TABLES[name] then
      if type(value) ~= 'table' then return false end
      if name == 'parent' then return all_are(value, 'string', 3) end
      if name == 'ends' then return all_are(value, 'number', 6) end
      if name == 'wait' then return type(value[1]) == 'string' and type(value[2]) == 'table' and all_are(value[2], 'string', #value[2]) end
      return type(value[1]) == 'number' and type(value[2]) == 'boolean' and type(value[3]) == 'number'
        and type(value[4]) == 'number' and type(value[5]) == 'string'
    end
    if TEXTS[name] then return type(value) == 'string' end
    return type(value) == 'number' and value >= -1 and value <= 2 * FOREVER and value == floor(value)
  end

  -- The part of a record, or nil if it is damaged.
  local function read(record)
    local done, list = pcall(cmsgpack.unpack, record)
    if not done or type(list) ~= 'table' or type(list[1]) ~= 'string' or type(list[2]) ~= 'number' then return nil end
    local g = { generation = list[1] }
    for i, name in ipairs(FLAGS) do g[name] = has(list[2], 2 ^ (i - 1)) end
    for i, name in ipairs(FIELDS) do
      local value = list[i + 2]
      if value == nil then g[name] = DEFAULTS[name] else g[name] = value end
      if value ~= nil and not fits(name, value) then return nil end
    end
    return g
  end

  function F.new(generation)
    local g = { generation = generation, final = true }
    for name, value in pairs(DEFAULTS) do g[name] = value end
    return g
  end

  local function parts_in(q)
    local parts = rawget(q, 'parts')
    if not parts then
      parts = {}
      q.parts = parts
    end
    return parts
  end

  -- The part of a job, or nil. One that cannot be read is that of a job that waits for nothing.
  function F.load(q, id)
    local parts = parts_in(q)
    if parts[id] == nil then
      local record = call('HGET', q.generations, id)
      parts[id] = record and (read(record) or F.new('')) or false
      if record and parts[id].generation == '' then parts[id].broken = true end
    end
    return parts[id] or nil
  end

  function F.save(q, id, g)
    local list, flags, last = { g.generation }, 0, 2
    for i, name in ipairs(FLAGS) do
      if g[name] then flags = flags + 2 ^ (i - 1) end
    end
    list[2] = flags
    for i, name in ipairs(FIELDS) do
      list[i + 2] = g[name]
      if g[name] ~= DEFAULTS[name] then last = i + 2 end
    end
    for i = #FIELDS + 2, last + 1, -1 do list[i] = nil end
    if g.broken then
      damaged(q, 1)
      g.broken = nil
    end
    parts_in(q)[id], g.changed = g, nil
    call('HSET', q.generations, id, spend(cmsgpack.pack(list)))
  end

  -- The generation of a job that was put without one.
  function F.plain_generation(j) return string.format('%x', j.created) end

  -- The part of a job, stored if it has none. The record of the job, and that of its run, get the flag.
  function F.ensure(q, id, j, run)
    local g = F.load(q, id)
    if not g then
      g = F.new(F.plain_generation(j))
      g.begun = run ~= nil
      F.save(q, id, g)
    end
    F.mark(q, id, j, run)
    return g
  end

  -- Flag the records of a job that has a part in flows, or notices, so that no fast path meets them.
  function F.mark(q, id, j, run)
    if not j.flow then
      j.flow = true
      call('HSET', q.jobs, id, spend(note_length(q, build(j))))
    end
    if run and not run.flow then
      run.flow = true
      call('HSET', q.runs, id, build_run(run))
    end
  end

  -- Remove the parts of jobs whose records go.
  function F.forget(q, ids)
    local parts = parts_in(q)
    for _, id in ipairs(ids) do
      local g = F.load(q, id)
      if g and g.key ~= '' then F.drop_keys(q.prefix, g.key) end
      parts[id] = false
    end
    call('HDEL', q.generations, unpack(ids))
    call('HDEL', q.notices, unpack(ids))
  end

  function F.drop_keys(prefix, key)
    local names = {}
    for i, name in ipairs(OWN_KEYS) do names[i] = prefix .. name .. key end
    call('UNLINK', unpack(names))
  end

  -- Move the part of a blocked successor to the job that it becomes; without `part` only its notices, to that job's.
  function F.move(q, from, to, part)
    local list = call('HGET', q.notices, from)
    local g = F.load(q, from)
    if part and g then F.save(q, to, g) elseif g and g.key ~= '' then F.drop_keys(q.prefix, g.key) end
    parts_in(q)[from] = false
    call('HDEL', q.generations, from)
    call('HDEL', q.notices, from)
    if list then F.add_notices(q, to, F.read_notices(list)) end
    return g and part or list
  end

  -- Notices ------------------------------------------------------------------------------------------

  -- The notices of a job: reference of the queue, id, generation, number and mode of each. {} if they are damaged.
  function F.read_notices(list)
    local done, flat = pcall(cmsgpack.unpack, list or '')
    local found = {}
    for i = 1, done and type(flat) == 'table' and #flat or 0, 5 do
      if not all_are({ flat[i], flat[i + 1], flat[i + 2] }, 'string', 3) or type(flat[i + 3]) ~= 'number'
        or type(flat[i + 4]) ~= 'number' then return {} end
      found[#found + 1] = { flat[i], flat[i + 1], flat[i + 2], flat[i + 3], flat[i + 4] }
    end
    return found
  end

  function F.notices_of(q, id) return F.read_notices(spend(call('HGET', q.notices, id))) end

  -- Add notices to those of a job, unless it is new and has none; the same one again replaces the first.
  function F.add_notices(q, id, more, is_new)
    if #more == 0 then return end
    local flat, places = {}, {}
    local function add(n)
      local name = n[1] .. '\0' .. n[2] .. '\0' .. n[3] .. '\0' .. n[4]
      local at = places[name] or #flat
      places[name] = at
      for i = 1, 5 do flat[at + i] = n[i] end
    end
    for _, n in ipairs(is_new and {} or F.notices_of(q, id)) do add(n) end
    for _, n in ipairs(more) do add(n) end
    call('HSET', q.notices, id, spend(cmsgpack.pack(flat)))
  end

  -- Queues -------------------------------------------------------------------------------------------

  function F.name_of(ref) return string.match(ref, '^(.*)%z[^%z]*$') or ref end

  local function encode(name)
    return (string.gsub(name, '[^%w%-_./~ ]', function(c) return string.format('%%%02X', byte(c)) end))
  end

  -- The start of the keys of a queue, by its reference.
  function F.prefix_of(ref)
    local start = string.match(ARGV[2], '^[^{]*')
    local tail = string.match(ref, '^.*%z([^%z]*)$')
    if tail then return start .. tail end
    local family = encode(string.match(ref, '^[^/]*'))
    return start .. '{' .. (family == '' and '%' or family) .. '}:' .. encode(ref) .. ':'
  end

  function F.ref_of(q)
    if F.prefix_of(q.name) == q.prefix and not find(q.name, '%z') then return q.name end
    return q.name .. '\0' .. string.match(q.prefix, '{.*$')
  end

  function F.queue_of(q, ref) return other_queue(q, F.prefix_of(ref), F.name_of(ref)) end

  -- Dependencies -------------------------------------------------------------------------------------

  -- The key of a list of dependencies, and the place of a number in it.
  local function place(q, g, list, number)
    if number >= FOLLOW_UPS then return q.prefix .. list .. '+:' .. g.key, number - FOLLOW_UPS end
    return q.prefix .. list .. ':' .. g.key, number
  end

  -- How a dependency ended, 'o' if it is open, or nil if there is none; then whether it is a culprit.
  function F.state_of(q, g, number)
    if g.key == '' then return nil end
    local key, at = place(q, g, 'deps', number)
    local letter = call('GETRANGE', key, at, at)
    local small = string.lower(letter)
    if letter == '' or not find('o' .. ENDS, small, 1, true) then return nil end
    return small, small ~= letter
  end

  function F.set_state(q, g, number, letter, culprit)
    local key, at = place(q, g, 'deps', number)
    call('SETRANGE', key, at, culprit and string.upper(letter) or letter)
  end

  -- Reference of the queue, and id, of the job that a dependency waits for.
  function F.ref_at(q, g, number)
    local key, at = place(q, g, 'refs', number)
    local packed = call('LINDEX', key, at)
    if not packed or #packed < 2 then return '', '' end
    local size = unpack_head('>H', packed)
    return sub(packed, 3, 2 + size), sub(packed, 3 + size)
  end

  function F.mode_of(q, g, number)
    local key, at = place(q, g, 'modes', number)
    return byte(call('GETRANGE', key, at, at)) or 0
  end

  function F.value_of(q, g, number) return call('HGET', q.prefix .. 'journal:' .. g.key, 'v' .. number_text(number)) or nil end

  function F.ensure_key(g, j)
    if g.key ~= '' then return end
    local t = call('TIME')
    g.key = string.format('%x.%x.%x', t[1], t[2], j.seq)
  end

  -- Add dependencies {reference of the queue, id} from a number on; those that are there are left. The caller saves.
  function F.add_dependencies(q, g, j, first, refs)
    if #refs == 0 then return end
    F.ensure_key(g, j)
    local deps, at = place(q, g, 'deps', first)
    local list, known = place(q, g, 'refs', first), call('STRLEN', deps)
    local packed, holes = {}, {}
    for _ = known, at - 1 do holes[#holes + 1] = '' end
    for i, ref in ipairs(refs) do
      local entry = pack('>H', #ref[1]) .. ref[1] .. ref[2]
      if at + i - 1 >= known then
        packed[#packed + 1] = entry
      elseif not F.state_of(q, g, first + i - 1) then
        call('LSET', list, at + i - 1, entry)
        F.set_state(q, g, first + i - 1, 'o')
      else
        entry = nil
      end
      if entry then
        g.open, g.bytes = g.open + 1, g.bytes + #entry - 2 - (#ref[1] - #F.name_of(ref[1]))
      end
    end
    if #packed == 0 then return end
    for i = 1, #holes, 1000 do call('RPUSH', list, unpack(holes, i, min(i + 999, #holes))) end
    for i = 1, #packed, 1000 do call('RPUSH', list, unpack(packed, i, min(i + 999, #packed))) end
    call('SETRANGE', deps, math.max(at, known), string.rep('o', #packed))
  end

  -- The first dependency after a number, and before another one, whose byte fits a pattern; nil if there is none.
  function F.next(q, g, pattern, after, before)
    if g.key == '' then return nil end
    local number = after + 1
    for _, list in ipairs({ { 'deps:', 0, FOLLOW_UPS }, { 'deps+:', FOLLOW_UPS, 2 * FOLLOW_UPS } }) do
      number = math.max(number, list[2])
      local last = min(before, list[3]) - 1
      while number <= last do
        local text = call('GETRANGE', q.prefix .. list[1] .. g.key, number - list[2], min(number + CHUNK, last) - list[2])
        if text == '' then break end
        local at = find(text, pattern)
        if at then return number + at - 1 end
        number = number + #text
      end
    end
  end

  -- How many dependencies from one number to before another are open.
  function F.count_open(q, g, first, before)
    if g.key == '' or before <= first then return 0 end
    local count = 0
    for at = first, min(before, g.total) - 1, CHUNK do
      local text = call('GETRANGE', q.prefix .. 'deps:' .. g.key, at, min(at + CHUNK, before) - 1)
      count = count + select(2, string.gsub(text, '[oO]', ''))
    end
    return count
  end

  -- The dependencies that a suspended job waits for: the first number, and the one after the last.
  function F.awaited(g)
    if g.is_plan then return 0, 2 * FOLLOW_UPS end
    if g.begun then return g.first, g.first + g.count end
    return 0, g.needs
  end

  function F.awaits(g, number)
    local first, before = F.awaited(g)
    return number >= first and number < before
  end

  function F.recount(q, g)
    if g.is_plan then g.waiting = g.open else g.waiting = F.count_open(q, g, F.awaited(g)) end
  end

  -- Count a dependency that was closed (1) or is open again (-1).
  function F.count_end(g, letter, by)
    g.ends = g.ends or { 0, 0, 0, 0, 0, 0 }
    local at = find(ENDS, letter, 1, true)
    g.ends[at] = g.ends[at] + by
    g.open = g.open - by
  end

  -- Open a closed dependency.
  function F.open_again(q, g, number, letter, culprit)
    F.set_state(q, g, number, 'o', culprit)
    local value, name = F.value_of(q, g, number), number_text(number)
    if value then
      g.bytes = g.bytes - #value
      call('HDEL', q.prefix .. 'journal:' .. g.key, 'v' .. name)
    end
    if g.harms > 0 then g.harms = g.harms - call('ZREM', q.prefix .. 'harm:' .. g.key, name) end
    F.count_end(g, letter, -1)
  end

-- include: suspended
  built_flows = F
  return F
end
