-- The fast path of put: plain jobs with free ids are written together. It must equal `put_one` for each of them;
-- tests/storage/test_fast_and_slow.py compares the two. It stands before all helpers, which would take a third of its
-- time, and makes no lists for a single job.
local prefix = ARGV[2]
local meta -- seq, time, expiry, big

-- Whether all these jobs are plain and new. The client sends only plain jobs in these two forms. Ids are looked up by
-- their records, in one command; the general path does otherwise if these could be long.
local function all_plain(form)
  if not FAST or form ~= 'fresh' and form ~= 'named' then return false end
  meta = call('HMGET', prefix .. 'meta', 'seq', 'time', 'expiry', 'big')
  if form == 'fresh' then return true end
  local ids = {}
  for i = 9, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  if #ids * (tonumber(meta[4]) or 0) > MAX_BYTES then return false end
  for _, taken in ipairs(call('HMGET', prefix .. 'jobs', unpack(ids))) do
    if taken then return false end
  end
  return true
end

-- The answer of put, or nil if the queue is new; or if the clock was set back: then records need the full head; or if jobs
-- have expired; or if one of these numbers is damaged.
local function put_together()
  local meta_key = prefix .. 'meta'
  local seq, count = tonumber(meta[1]), (#ARGV - 8) / 2
  if not seq or seq <= 0 or seq + count > FOREVER or seq ~= floor(seq) then return nil end
  if (tonumber(meta[2] or 0) or FOREVER) > now or (meta[3] and (tonumber(meta[3]) or 0) <= now) then return nil end
  local head = pack('>BB', FORMAT, SHORT)
  local channel = ARGV[8] ~= '' and pack('>H', #ARGV[8]) .. ARGV[8]
  local longest = 0
  for i = 10, #ARGV, 2 do
    if #ARGV[i] > longest then longest = #ARGV[i] end
  end
  longest = longest + SHORT_SIZE
  if longest > SMALL and longest > (tonumber(meta[4]) or 0) then
    call('HSET', meta_key, 'seq', seq + count, 'time', now, 'big', longest)
  else
    call('HSET', meta_key, 'seq', seq + count, 'time', now)
  end
  if count == 1 then
    local id, position = ARGV[9], pack('>I6I6', now, seq + 1)
    call('HSET', prefix .. 'jobs', id, head .. position .. ARGV[10])
    call('ZADD', prefix .. 'ready', '0', PLAIN_RANK .. position .. 'j' .. id)
    if channel then call('HSET', prefix .. 'waits', id, channel) end
  else
    local jobs, ready, waits = {}, {}, {}
    for i = 1, 2 * count, 2 do
      seq = seq + 1
      local id, position = ARGV[8 + i], pack('>I6I6', now, seq)
      jobs[i], jobs[i + 1] = id, head .. position .. ARGV[9 + i]
      ready[i], ready[i + 1] = '0', PLAIN_RANK .. position .. 'j' .. id
      if channel then waits[i], waits[i + 1] = id, channel end
    end
    call('HSET', prefix .. 'jobs', unpack(jobs))
    call('ZADD', prefix .. 'ready', unpack(ready))
    if channel then call('HSET', prefix .. 'waits', unpack(waits)) end
  end
  if call('LLEN', prefix .. 'wake') == 0 then -- as `wake`, which is not loaded yet
    call('LPUSH', prefix .. 'wake', '1')
    call('PEXPIRE', prefix .. 'wake', WAKE_MS)
  end
  local to = listened and wanted('enqueued', ARGV[3])
  if to then
    local ids = {}
    for i = 1, count do ids[i] = ARGV[7 + 2 * i] end
    add_events(to, 'enqueued', ARGV[3], ids, 0)
  end
  return { 0, 1 }
end
