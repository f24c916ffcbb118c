-- renew: running -> running, for the named claims only
-- keys: runs leases batches
-- args: lease held (msgpack: a list of {id, token})
-- gives: a list of 0 (lost), 1 (kept), 2, 3, 4 (kept; asked to cancel: forget, signal, kill)
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local deadline, held = now + tonumber(ARGV[4]), cmsgpack.unpack(ARGV[5])
local gives, named, ids = {}, {}, {}
for i, h in ipairs(held) do ids[i] = h[1] end
local runs = call('HMGET', q.runs, unpack(ids))
for i, h in ipairs(held) do
  local id, token, run = h[1], h[2], runs[i]
  if run and sub(run, 1, 16) == token then
    gives[i] = #run > 16 and 1 + parse_run(run).cancel or 1
    named[token] = named[token] or { n = 0, ids = {} }
    if not named[token].ids[id] then
      named[token].ids[id] = true
      named[token].n = named[token].n + 1
    end
  else
    gives[i] = 0
  end
end

-- A lease belongs to a token. If its holder does not name all runs of the token, the others keep
-- the old deadline, under the token's name with a `~`.
local function split(token, names)
  local old = call('ZSCORE', q.leases, token)
  if not old or call('ZSCORE', q.leases, token .. '~') then return end
  local unnamed = {}
  for _, id in ipairs(cmsgpack.unpack(call('HGET', q.batches, 'b' .. token))) do
    if not names[id] then unnamed[#unnamed + 1] = id end
  end
  call('HSET', q.batches, 'b' .. token .. '~', cmsgpack.pack(unnamed))
  call('ZADD', q.leases, old, token .. '~')
end

for token, who in pairs(named) do
  if who.n < tonumber(call('HGET', q.batches, 'n' .. token) or 0) then split(token, who.ids) end
  call('ZADD', q.leases, 'XX', deadline, token)
end
return gives
