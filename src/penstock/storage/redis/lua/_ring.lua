-- Samples of a queue, or of all queues together: a record is its time (6 bytes), then as msgpack the counts of the nine
-- states, the six totals, how long the oldest job waits (-1: none), and counts and sum of the times of waits and of runs.
--
-- history: m, t, h + number -> sample of a minute, of ten minutes, of an hour; n -> the newest sample; u -> until when
-- the queue was found unchanged after it; b -> totals from before the queue was forgotten; s -> the part of totals and
-- times that the samples of all queues have counted
local ring = { STATS_MS = 1209600000 }
do -- helpers of it alone: a script has at most 200 local variables at once
  local STEPS = { { 'm', 60000, 120 }, { 't', 600000, 288 }, { 'h', 3600000, 336 } }
  local STATES_SIZE, TOTALS_SIZE, BUCKETS = 9, 6, 72

  -- Whether a value is a list of up to `most` numbers.
  local function are_numbers(list, most)
    if type(list) ~= 'table' or #list > most then return false end
    for _, n in ipairs(list) do if type(n) ~= 'number' or n < 0 then return false end end
    return true
  end

  -- Times as stored: counts and sum of waits, counts and sum of runs. Nil for damaged ones.
  local function are_times(t, at)
    return are_numbers(t[at], BUCKETS) and type(t[at + 1]) == 'number' and are_numbers(t[at + 2], BUCKETS)
      and type(t[at + 3]) == 'number'
  end

  function ring.unpack(text)
    local read, list = pcall(cmsgpack.unpack, text or '')
    if read and type(list) == 'table' then return list end
    return {}
  end

  function ring.read_times(text)
    local t = ring.unpack(text)
    return are_times(t, 1) and t or { {}, 0, {}, 0 }
  end

  function ring.read_totals(text)
    local t = ring.unpack(text)
    return are_numbers(t, TOTALS_SIZE) and #t == TOTALS_SIZE and t or { 0, 0, 0, 0, 0, 0 }
  end

  -- The body of a sample, or nil for a damaged one.
  local function read_body(record)
    if not record or #record < 7 then return nil end
    local s = ring.unpack(sub(record, 7))
    local sound = are_numbers(s[1], STATES_SIZE) and are_numbers(s[2], TOTALS_SIZE) and #s[2] == TOTALS_SIZE
      and type(s[3]) == 'number' and are_times(s, 4)
    return sound and s or nil
  end
  ring.read_body = read_body

  -- Add (or, with -1, subtract) the numbers of lists.
  function ring.add(first, second, sign)
    local sum = {}
    for i = 1, math.max(#first, #second) do sum[i] = (first[i] or 0) + sign * (second[i] or 0) end
    return sum
  end

  function ring.build(at, body) return pack('>I6', at) .. cmsgpack.pack(body) end

  local function number_of(step, record) return #(record or '') > 6 and floor(unpack_head('>I6', record) / step[2]) end

  -- Keep a sample as that of its minute, and of its ten minutes and its hour if these have none yet.
  local function keep(key, at, body)
    local record = ring.build(at, body)
    for i, step in ipairs(STEPS) do
      local number = floor(at / step[2])
      local field = step[1] .. number % step[3]
      if i == 1 or number_of(step, call('HGET', key, field)) ~= number then call('HSET', key, field, record) end
    end
    return record
  end

  -- Take a sample, unless nothing has changed since the last one: then only the time of this look is kept. When something
  -- changes again, the last sample is repeated for the last look, so that a longer distance of two samples that differ
  -- means that there was none.
  function ring.take(key, body)
    local known = call('HMGET', key, 'n', 'u')
    local newest, looked = read_body(known[1]), to_number(known[2])
    if newest then
      local oldest, before = body[3], newest[3]
      body[3], newest[3] = -1, -1
      local same = cmsgpack.pack(body) == cmsgpack.pack(newest)
      body[3], newest[3] = oldest, before
      if same then return call('HSET', key, 'u', now) end
      local at = unpack_head('>I6', known[1])
      if looked > at then
        if before >= 0 then newest[3] = before + looked - at end
        keep(key, looked, newest)
      end
    end
    call('HSET', key, 'n', keep(key, now, body))
    call('HDEL', key, 'u')
    call('PEXPIRE', key, ring.STATS_MS)
  end
end
