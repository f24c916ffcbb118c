-- read: the entries of a history
-- flags: no-writes
-- keys: jobs ends attempts log
-- args: id, 'attempts' or 'log', number after which they begin, limit
-- gives: nil when there is no such job, or {1 when there are more, then of each attempt: number, time, attempt, outcome,
--        begin, worker, error; of each line: number, time, attempt, text}
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

local log = redis.pcall('HGET', q.log, id)
local head = log and histories().parse_log(log)
if head then
  local n = head.last - head.count
  histories().each_line(log, function(size, time, attempt, at)
    n = n + 1
    if n <= after then return false end
    if not take_room(size) then return true end
    gives[#gives + 1] = n
    gives[#gives + 1] = time
    gives[#gives + 1] = attempt
    gives[#gives + 1] = sub(log, at, at + size - 1)
  end)
end
return gives
