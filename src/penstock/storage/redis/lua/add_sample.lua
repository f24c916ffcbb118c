-- add_sample: add what has changed in all queues to their common samples
-- flags: allow-oom
-- keys: of no queue
-- args: request, window (see _once.lua), the body of a sample (see _ring.lua) whose totals and times are those since the last one
-- gives: 1
-- include: queue ring once
return once(function()
  local key = ARGV[2] .. 'history'
  local more = ring.read_body('      ' .. ARGV[6])
  local known = ring.read_body(call('HGET', key, 'n'))
  if known then
    more = { more[1], ring.add(known[2], more[2], 1), more[3], ring.add(known[4], more[4], 1), known[5] + more[5],
      ring.add(known[6], more[6], 1), known[7] + more[7] }
  end
  ring.take(key, more)
  return 1
end)
