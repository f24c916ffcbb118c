-- record_stats: add the measured times of runs of a queue
-- flags: allow-oom
-- keys: meta stats
-- args: request, window (see _once.lua), times (msgpack, see _ring.lua)
-- gives: 1, or 0 if there is no such queue
-- include: queue ring once
local q = queue_at(ARGV[2], ARGV[3])
return once(function()
  if call('EXISTS', q.meta) == 0 then return 0 end
  local known, more = ring.read_times(redis.pcall('GET', q.stats)), ring.read_times(ARGV[6])
  call('SET', q.stats, cmsgpack.pack({ ring.add(known[1], more[1], 1), known[2] + more[2],
    ring.add(known[3], more[3], 1), known[4] + more[4] }), 'PX', ring.STATS_MS)
  return 1
end)
