-- renew: running -> running, for the named claims only
-- flags: allow-oom
-- keys: runs leases batches meta
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
    local known = #run > 16 and parse_run(run)
    gives[i] = known and 1 + known.cancel or 1
    named[token] = named[token] or { n = 0, ids = {} }
    if not named[token].ids[id] then
      named[token].ids[id] = true
      named[token].n = named[token].n + 1
    end
  else
    gives[i] = 0
  end
end

-- A lease belongs to a token. Runs of it that this call does not name keep their old deadlines, in one part for each
-- deadline: the ids are in `b`, token, `~` and the number of the part; `p` has the number of parts.
local function part(token, names)
  local count, part_of = parts_of(q, token)
  local kept, deadlines = {}, {}
  local ids = ids_of(q, token)
  for i, run in ipairs(#ids > 0 and call('HMGET', q.runs, unpack(ids)) or {}) do
    local id = ids[i]
    if run and sub(run, 1, 16) == token and not names[id] then
      local old = call('ZSCORE', q.leases, part_of[id] or token)
      if old and not kept[old] then
        kept[old] = {}
        deadlines[#deadlines + 1] = old
      end
      if old then table.insert(kept[old], id) end
    end
  end
  for n = 1, math.max(count, #deadlines) do
    local name = token .. '~' .. n
    if deadlines[n] then
      call('HSET', q.batches, 'b' .. name, cmsgpack.pack(kept[deadlines[n]]))
      call('ZADD', q.leases, deadlines[n], name)
    else
      call('HDEL', q.batches, 'b' .. name)
      call('ZREM', q.leases, name)
    end
  end
  if #deadlines > 0 then
    call('HSET', q.batches, 'p' .. token, #deadlines)
  else
    call('HDEL', q.batches, 'p' .. token)
  end
end

for token, kept in pairs(named) do
  local known = call('HMGET', q.batches, 'n' .. token, 'p' .. token)
  if known[2] or kept.n < to_number(known[1]) then part(token, kept.ids) end
  call('ZADD', q.leases, deadline, token)
end
return gives
