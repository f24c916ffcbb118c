-- The histories of jobs: their failed attempts, and what their runs log and emit. They go with the record of the job.
--
-- attempts: msgpack, a list of {number, time, attempt, outcome, begin of the run, worker, error or false for that of the
--           first}: the first of the job, and the last 19
-- log:      head: number of the last line, lines, bytes of their texts, token of the run that logged last (16), number of
--           its last line within that run; then of each line: length, time, attempt, text
-- stream:   'h' + id, the head: numbers of the first and the last chunk, of the first and the last part, bytes of all parts,
--           token of the run that emitted last (16), number of its last part within that run. 'c' + number of a chunk (4)
--           + id: of each part length, number, time, attempt, bytes. A chunk with 16 KiB is full
local STREAM_HEAD, STREAM_SIZE = '>I4I4I6I6I4', 44

-- Forget the histories of jobs whose records go. Most queues have none.
local function forget_histories(q, ids)
  local known = rawget(q, 'has_histories')
  if known == nil then
    known = call('EXISTS', q.attempts, q.log, q.stream) > 0
    q.has_histories = known
  end
  if known then
    call('HDEL', q.attempts, unpack(ids))
    call('HDEL', q.log, unpack(ids))
    local heads = {}
    for i, id in ipairs(ids) do heads[i] = 'h' .. id end
    for i, head in ipairs(call('HMGET', q.stream, unpack(heads))) do
      if head then
        local fields, from, to = { heads[i] }, 1, 0
        if #head == STREAM_SIZE then from, to = unpack_head(STREAM_HEAD, head) end
        for chunk = from, math.min(to, from + 1000) do fields[#fields + 1] = 'c' .. pack('>I4', chunk) .. ids[i] end
        call('HDEL', q.stream, unpack(fields))
      end
    end
  end
end

-- The other helpers: a script that needs them builds them, in one table, with the first call.
local built_histories
local function histories()
  if built_histories then return built_histories end
  local H = {}
  local MAX_ATTEMPTS, MAX_LINES, MAX_LOG = 20, 1000, 262144
  local LOG_HEAD, LOG_SIZE, LINE_HEAD, LINE_SIZE = '>I6I4I4', 34, '>I4I6H', 12

  local function is_entry(e)
    return type(e) == 'table' and type(e[1]) == 'number' and type(e[2]) == 'number' and type(e[3]) == 'number'
      and type(e[4]) == 'string' and type(e[5]) == 'number' and type(e[6]) == 'string'
      and (type(e[7]) == 'string' or e[7] == false)
  end

  -- The entries of a list, {} if it is damaged.
  function H.attempts_of(q, id)
    local list = redis.pcall('HGET', q.attempts, id)
    if not list then return {} end
    local read, entries = pcall(cmsgpack.unpack, type(list) == 'string' and list or '')
    if not read or type(entries) ~= 'table' or #entries == 0 then return {}, true end
    for _, entry in ipairs(entries) do
      if not is_entry(entry) then return {}, true end
    end
    return entries
  end

  -- Add the run of a token, which ends now. It is called before the lease of the run goes, which has its begin.
  function H.add_attempt(q, id, token, attempt, outcome, worker, error)
    local begun = tonumber(call('ZSCORE', q.leases, '!' .. token) or 0)
    local entries, bad = H.attempts_of(q, id)
    if bad then damaged(q, 1) end
    local first, last = entries[1], entries[#entries]
    if first and first[7] == error then error = false end
    entries[#entries + 1] = { last and last[1] + 1 or 1, now, attempt, outcome, begun < 0 and begun + LONG_AGO or 0,
      sub(worker, 7), error }
    if #entries > MAX_ATTEMPTS then table.remove(entries, 2) end
    call('HSET', q.attempts, id, spend(cmsgpack.pack(entries)))
    budget = budget - 8000 -- beside its bytes: a failing attempt takes more commands than a completion
    q.has_histories = true
  end

  -- The head of a log, and where its lines begin and end; nil if it is damaged.
  function H.parse_log(log)
    if type(log) ~= 'string' or #log < LOG_SIZE then return nil end
    local last, count, bytes = unpack_head(LOG_HEAD, log)
    if #log ~= LOG_SIZE + count * LINE_SIZE + bytes then return nil end
    return { last = last, count = count, bytes = bytes, token = sub(log, 15, 30), number = unpack_head('>I4', log, 31) }
  end

  -- Call a function with length, time, attempt and position of each line, until it returns true; gives the position after.
  function H.each_line(log, visit)
    local at = LOG_SIZE + 1
    while at + LINE_SIZE <= #log + 1 do
      local size, time, attempt = unpack_head(LINE_HEAD, log, at)
      if visit(size, time, attempt, at + LINE_SIZE) then return at end
      at = at + LINE_SIZE + size
    end
    return at
  end

  -- Add the lines of a run, {age, text}, of which the first has this number within the run. Those that are
  -- there already are left out, and the oldest beyond the bounds go.
  function H.add_lines(q, id, token, attempt, first, lines)
    local log = redis.pcall('HGET', q.log, id)
    local head = log and H.parse_log(log)
    if log and not head then damaged(q, 1) end
    head = head or { last = 0, count = 0, bytes = 0, token = '', number = 0 }
    local added, number = {}, first - 1
    for _, line in ipairs(lines) do
      number = number + 1
      if head.token ~= token or number > head.number then
        local text = line[2]
        added[#added + 1] = pack(LINE_HEAD, #text, math.max(now - line[1], 0), attempt) .. text
        head.last, head.count, head.bytes = head.last + 1, head.count + 1, head.bytes + #text
      end
    end
    if #added == 0 then return false end
    local body = (type(log) == 'string' and #log > LOG_SIZE and head.count > #added and log or string.rep('\0', LOG_SIZE))
      .. table.concat(added)
    local from = H.each_line(body, function(size)
      if head.count <= MAX_LINES and head.bytes <= MAX_LOG then return true end
      head.count, head.bytes = head.count - 1, head.bytes - size
    end)
    call('HSET', q.log, id, spend(pack(LOG_HEAD, head.last, head.count, head.bytes) .. token .. pack('>I4', number)
      .. sub(body, from)))
    return true
  end

  local PART_HEAD, PART_SIZE = '>I4I6I6H', 18
  local MAX_PARTS, MAX_STREAM, CHUNK_BYTES = 1000, 1048576, 16384

  local function chunk_field(number, id) return 'c' .. pack('>I4', number) .. id end

  -- The head of a stream; nil if there is none, and true after it if it is damaged.
  function H.stream_head(q, id)
    local head = redis.pcall('HGET', q.stream, 'h' .. id)
    if not head then return nil end
    if type(head) ~= 'string' or #head ~= STREAM_SIZE then return nil, true end
    local from, to, first, last, bytes = unpack_head(STREAM_HEAD, head)
    if from > to or to - from > 1000 or first > last then return nil, true end
    return { from = from, to = to, first = first, last = last, bytes = bytes, token = sub(head, 25, 40),
      number = unpack_head('>I4', head, 41) }
  end

  function H.chunk_of(q, id, number)
    local chunk = redis.pcall('HGET', q.stream, chunk_field(number, id))
    return type(chunk) == 'string' and spend(chunk) or ''
  end

  -- Call a function with length, number, time, attempt and position of each part of a chunk, until it returns true;
  -- gives the position of that part, nil after the last one.
  function H.each_part(chunk, visit)
    local at = 1
    while at + PART_SIZE <= #chunk + 1 do
      local size, n, time, attempt = unpack_head(PART_HEAD, chunk, at)
      if at + PART_SIZE + size > #chunk + 1 then return nil end
      if visit(size, n, time, attempt, at + PART_SIZE) then return at end
      at = at + PART_SIZE + size
    end
  end

  -- Drop the oldest parts beyond the bounds. `chunks` has those that are to be written.
  local function trim_stream(q, id, head, chunks)
    while head.bytes > MAX_STREAM or head.first <= head.last - MAX_PARTS do
      local chunk = chunks[head.from] or H.chunk_of(q, id, head.from)
      local at = H.each_part(chunk, function(size, n)
        head.first = n
        if head.bytes <= MAX_STREAM and n > head.last - MAX_PARTS then return true end
        head.bytes = math.max(head.bytes - size, 0)
      end)
      if at then
        chunks[head.from] = sub(chunk, at)
        return
      end
      chunks[head.from] = nil
      call('HDEL', q.stream, chunk_field(head.from, id))
      if head.from >= head.to then -- damaged: there is no part left
        head.first, head.bytes = head.last, 0
        return
      end
      head.from = head.from + 1
    end
  end

  -- Add the parts of a run, of which the first has this number within the run. Those that are there already are left
  -- out, and the oldest beyond the bounds go.
  function H.add_parts(q, id, token, attempt, first, parts)
    local head, bad = H.stream_head(q, id)
    if bad then damaged(q, 1) end
    local chunk = head and H.chunk_of(q, id, head.to) or ''
    head = head or { from = 1, to = 1, last = 0, bytes = 0, token = '', number = 0 }
    if head.token ~= token then head.token, head.number = token, 0 end
    local base, buffer, size, chunks = head.last - head.number, { chunk }, #chunk, {}
    for i, part in ipairs(parts) do
      local number = first + i - 1
      if number > head.number then
        if size >= CHUNK_BYTES then
          chunks[head.to] = table.concat(buffer)
          head.to, buffer, size = head.to + 1, {}, 0
        end
        local n = base + number
        buffer[#buffer + 1] = pack(PART_HEAD, #part, n, now, attempt) .. part
        size = size + PART_SIZE + #part
        head.number, head.last, head.bytes, head.first = number, n, head.bytes + #part, head.first or n
        chunks[head.to] = ''
      end
    end
    if not chunks[head.to] then return false end
    chunks[head.to] = table.concat(buffer)
    trim_stream(q, id, head, chunks)
    local fields = { 'h' .. id, pack(STREAM_HEAD, head.from, head.to, head.first, head.last, head.bytes) .. token
      .. pack('>I4', head.number) }
    for number = head.from, head.to do
      if chunks[number] then
        fields[#fields + 1] = chunk_field(number, id)
        fields[#fields + 1] = spend(chunks[number])
      end
    end
    call('HSET', q.stream, unpack(fields))
    q.has_histories = true
    return true
  end
  built_histories = H
  return H
end
