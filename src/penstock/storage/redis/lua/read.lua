-- read: the entries of a history
-- flags: no-writes
-- keys: jobs ends attempts log stream
-- args: id, 'attempts', 'log' or 'stream', number after which they begin, limit
-- gives: nil when there is no such job, or {1 when there are more, then of each attempt: number, time, attempt, outcome,
--        begin, worker, error; of each line or part: number, time, attempt, bytes}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local id, after, limit = ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7])
local gives = { 0 }

local ended = call('HGET', q.ends, id)
local expires = ended and select(3, parse_end(ended)) or 0
if call('HEXISTS', q.jobs, id) == 0 or expires ~= 0 and expires <= now then return nil end

-- Whether there is room for one more entry.
local function take_room(size)
  if limit <= 0 or budget <= 0 then
    gives[1] = 1
    return false
  end
  limit, budget = limit - 1, budget - size
  return true
end

if ARGV[5] == 'attempts' then
  local entries = histories().attempts_of(q, id)
  for _, e in ipairs(entries) do
    if e[1] > after then
      local error = e[7] or entries[1][7] or ''
      if not take_room(#error) then break end
      for _, value in ipairs({ e[1], e[2], e[3], e[4], e[5], e[6], error }) do gives[#gives + 1] = value end
    end
  end
  return gives
end

local function give(n, time, attempt, bytes)
  gives[#gives + 1] = n
  gives[#gives + 1] = time
  gives[#gives + 1] = attempt
  gives[#gives + 1] = bytes
end

if ARGV[5] == 'stream' then
  local head = histories().stream_head(q, id)
  if not head or head.last <= after then return gives end
  local chunks, from = {}, head.to
  while true do -- back from the last one: most readers have read nearly all
    local chunk = histories().chunk_of(q, id, from)
    chunks[from] = chunk
    local known = histories().each_part(chunk, function(_, n) return true end)
    if from <= head.from or known and select(2, unpack_head('>I4I6', chunk)) <= after + 1 then break end
    from = from - 1
  end
  budget = MAX_BYTES
  for number = from, head.to do
    local full = histories().each_part(chunks[number], function(size, n, time, attempt, at)
      if n <= after then return false end
      if not take_room(size) then return true end
      give(n, time, attempt, sub(chunks[number], at, at + size - 1))
    end)
    if full then break end
  end
  return gives
end

local log = redis.pcall('HGET', q.log, id)
local head = log and histories().parse_log(log)
if head then
  local n = head.last - head.count
  histories().each_line(log, function(size, time, attempt, at)
    n = n + 1
    if n <= after then return false end
    if not take_room(size) then return true end
    give(n, time, attempt, sub(log, at, at + size - 1))
  end)
end
return gives
