-- put: nothing -> queued / scheduled / blocked, or updated, or the existing state
-- uses: moves
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds completed failed cancelled meta waits wake
-- args: entries (msgpack: a list of asked-for jobs, see read_entry) blobs...
-- gives: a list of 1 (queued) or {status, state, result?}
local q = queue_at(ARGV[2], ARGV[3])
local entries = cmsgpack.unpack(ARGV[4])
local gives = {}

-- A plain new job with nothing to compare: most are, so they are written together.
local hset, zadd, mine = {}, {}, {}
local known = {}
local ask = {}
for i, e in ipairs(entries) do
  if #e == 3 and e[2] == 0 then ask[#ask + 1] = e[1] end
end
if #ask > 0 then
  local found = call('HMGET', q.jobs, unpack(ask))
  for i, id in ipairs(ask) do known[id] = found[i] and true or false end
end

local function flush()
  if #hset > 0 then
    call('HSET', q.jobs, unpack(hset))
    call('ZADD', q.ready, unpack(zadd))
    wake(q)
    hset, zadd = {}, {}
  end
end

local seq = call('HINCRBY', q.meta, 'seq', #entries) - #entries
if seq == 0 then call('SADD', KEYS[2], q.name) end
local accepted = acceptance(q)
local before = pack('>BBi4I6', FORMAT, 0, 0, accepted)
local after = pack('>I6I6HHHHHHHI4', now, now, 0, 0, 0, 0, 0, 0, 0, 0)
local rank_before = pack('>I4I6', 2147483647, accepted)

for i, e in ipairs(entries) do
  local id, code = e[1], e[2]
  if #e == 3 and (code == 64 or (code == 0 and known[id] == false)) and not mine[id] then
    local place_in_line = pack('>I6', seq + i)
    mine[id] = true
    hset[#hset + 1] = id
    hset[#hset + 1] = before .. place_in_line .. after .. blob(e[3])
    zadd[#zadd + 1] = 0
    zadd[#zadd + 1] = rank_before .. place_in_line .. 'j' .. id
    note('enqueued', q, id, 0)
    gives[i] = 1
  else
    flush()
    local asked = read_entry(e)
    asked.seq = seq + i
    mine[id] = true
    gives[i] = put_one(q, asked)
  end
end
flush()
return gives
