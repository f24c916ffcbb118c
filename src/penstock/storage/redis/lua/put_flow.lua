-- put_flow: jobs with parts in flows, of any queues that one script may touch, in their order
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates meta attempts log stream generations notices suspended successors waits wake
-- args: request, window (see _once.lua), entries (msgpack: a list of {start of the keys of the queue, its name, job (see
--       read_entry)}), how many jobs of this queue may wait then or -1, blobs...
-- gives: {-1, {how many wait, how many these would add}}, or {1, {names of the queues that are new}, a list, which may end
--        early (send the rest again), of answers as those of put}
-- include: shared transitions expiry once
local q = queue_at(ARGV[2], ARGV[3])
blobs = 7
budget = 3 * MAX_BYTES -- MAX_BATCH jobs with MAX_BYTES are put in one step

-- Whether a job would wait, and be a new one.
local function adds(of, e)
  if e.flow and notices().waits(e.flow) then return false end
  if e.window and windows().refuse(e, windows().end_of(of, e.id)) then return false end
  if call('HEXISTS', of.jobs, e.id) == 0 then return true end
  local ended = call('HGET', of.ends, e.id)
  return ended and may_replace(ended, e.update)
end

return once(function()
  local entries, seen, created, gives = {}, {}, {}, {}
  for i, new in ipairs(cmsgpack.unpack(ARGV[6])) do
    local of = other_queue(q, new[1], new[2])
    entries[i] = { of, read_entry(new[3]) }
    if not seen[of.prefix] then
      seen[of.prefix] = true
      if call('EXISTS', of.meta) == 0 then created[#created + 1] = of.name end
      expire(of)
    end
  end
  local most = tonumber(ARGV[7])
  if most >= 0 then
    local added, new = 0, {}
    for _, entry in ipairs(entries) do
      local e = entry[2]
      if not new[e.id] and adds(entry[1], e) then new[e.id], added = true, added + 1 end
    end
    local waiting = call('ZCARD', q.ready) + call('ZCARD', q.parked) - call('HLEN', q.turns) + call('ZCARD', q.lanes)
      + call('ZCARD', q.scheduled) + call('ZCARD', q.retrying)
    if added > 0 and waiting + added > most then return { -1, { waiting, added } } end
  end
  for i, entry in ipairs(entries) do
    gives[i] = entry[2].flow and notices().put(entry[1], entry[2]) or put_one(entry[1], entry[2])
    if budget <= 0 then break end
  end
  return { 1, created, gives }
end)
