-- extend: more dependencies for a job that is being stored; or it has them all: suspended -> queued or ended
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates meta attempts log stream generations notices suspended successors waits wake
-- args: request, window (see _once.lua), id, generation, first number, 1 if these are the last, dependencies (msgpack: a list of {queue, id})
-- gives: {number of dependencies, 1 when the generation is over}
-- include: shared transitions once
local q = queue_at(ARGV[2], ARGV[3])
local id, first, refs = ARGV[6], tonumber(ARGV[8]), cmsgpack.unpack(ARGV[10])
local F, N = flows(), notices()

local function extend()
  local j, ended, g = N.living(q, id, ARGV[7])
  if not j or ended then return { 0, 1 } end
  if not g or g.final then return { g and g.total or 0, 0 } end
  promote(q)
  j, ended, g = N.living(q, id, ARGV[7])
  if not g or ended then return { 0, 1 } end
  g.extended = now
  F.add_dependencies(q, g, j, first, refs)
  g.total = math.max(g.total, first + #refs)
  g.needs = g.total
  F.recount(q, g)
  local total = g.total
  if ARGV[9] == '1' then
    g.final, g.extended = true, false
    call('ZREM', family_start(q.prefix) .. 'open_flows', F.ref_of(q) .. '\0' .. id)
  elseif g.suspended then
    call('ZADD', family_start(q.prefix) .. 'open_flows', now, F.ref_of(q) .. '\0' .. id)
  end
  F.save(q, id, g)
  if g.final then
    N.evaluate(q, id, j, g)
    if effects then N.apply(q) end
  end
  return { total, 0 }
end
return once(extend)
