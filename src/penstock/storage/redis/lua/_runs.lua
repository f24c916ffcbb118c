-- Run records, and the batches that they belong to.

-- Count a transition beside `finished`; a damaged number begins anew.
local function count_total(q, name)
  if not add_to(q.meta, name, 1) then call('HSET', q.meta, name, 1) end
end

-- The cost of a record whose format is not 0.
local function cost_of(rec)
  return has(byte(rec, 2), COST) and #rec >= HEAD_SIZE + 4 and unpack_head('>I4', rec, HEAD_SIZE + 1) or 1
end

local CANCEL = { refuse = 0, forget = 1, signal = 2, kill = 3 }

-- The run of a record, or nil if the record is damaged.
local function parse_run(run)
  local group = group_of_run(run)
  if not group or #run < 16 then return nil end
  local r = { token = sub(run, 1, 16), cancel = 0, successor = false, limited = false, ttl = 0, group = nil, progress = nil }
  if #run > 16 then
    local successor, ttl
    r.cancel, successor, ttl = unpack_head('>BBI6', run, 17)
    if r.cancel > CANCEL.kill or successor > 7 then return nil end
    r.successor, r.limited, r.flow = has(successor, 1), has(successor, LIMITED), has(successor, FLOW_RUN)
    r.ttl = ttl > 0 and ttl - 1 or nil
    r.group = group ~= '' and group or nil
    if byte(run, 27 + #group) == 1 then r.progress = sub(run, 28 + #group) end
  end
  return r
end

local function build_run(r)
  if r.cancel == 0 and not r.successor and not r.limited and not r.flow and not r.group and not r.progress then return r.token end
  local flags = (r.successor and 1 or 0) + (r.limited and LIMITED or 0) + (r.flow and FLOW_RUN or 0)
  local group = r.group or ''
  return r.token .. pack('>BBI6H', r.cancel, flags, r.ttl and r.ttl + 1 or 0, #group) .. group
    .. (r.progress and '\1' .. r.progress or '\0')
end

-- The run of a record, for scripts that change or end it. If the record is damaged, its group and successor are found in
-- the other records; a cancel request and the progress are lost.
local function run_of(q, id, run)
  local r = parse_run(run)
  if r then -- the runs of a limited queue are all marked
    if not r.limited and rawget(q, 'limited_by') == nil then q.limited_by = 0 end
    return r
  end
  damaged(q, 1)
  local j = parse(call('HGET', q.jobs, id))
  return { token = sub(run, 1, 16), cancel = 0, successor = call('HEXISTS', q.blocked, id) == 1, ttl = 0,
    limited = limited_by(q) > 0, flow = j and j.flow, group = j and j.group }
end

-- Whether a job in the batch of an expired lease ran under its token. Of a damaged run the token may be another one, of
-- which there is no lease: it counts as a run of this batch, because none else would take its job back.
local function ran_under(q, run, token)
  local other = sub(run, 1, 16)
  return other == token or #other < 16 or not call('ZSCORE', q.leases, other)
end

-- The ids of a msgpack list, or nil if it is damaged.
local function unpack_ids(list)
  local read, ids = pcall(cmsgpack.unpack, list)
  if not read or type(ids) ~= 'table' or #ids == 0 then return nil end
  for _, id in ipairs(ids) do
    if type(id) ~= 'string' then return nil end
  end
  return ids
end

-- The ids in the batch of a token, or in a part of it. If that of a token cannot be read, its runs are looked for, and the
-- list is stored again; the runs in a part that cannot be read keep the deadline of the token.
local function ids_of(q, name)
  local list = call('HGET', q.batches, 'b' .. name)
  local ids = list and unpack_ids(list)
  if ids then return ids end
  if #name ~= 16 then return {} end
  ids = find_runs(q, name)
  if list or #ids > 0 then damaged(q, 1) end
  if #ids > 0 then call('HSET', q.batches, 'b' .. name, cmsgpack.pack(ids)) end
  return ids
end

-- The runs of a token with a deadline of their own: the number of parts, and id -> name of its part.
local function parts_of(q, token)
  local count, part_of = to_number(call('HGET', q.batches, 'p' .. token)), {}
  for n = 1, count do
    local part = token .. '~' .. n
    if call('HEXISTS', q.batches, 'b' .. part) == 0 then return n - 1, part_of end
    for _, id in ipairs(ids_of(q, part)) do part_of[id] = part end
  end
  return count, part_of
end
