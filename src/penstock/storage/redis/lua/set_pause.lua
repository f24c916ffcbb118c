-- set_pause: pause or resume the claims of a queue, or of one group of it
-- flags: allow-oom
-- keys: jobs runs ends ready scheduled retrying lanes turns holds parked backoffs expiring limits settings ruled gates closed recheck idle_gates meta wake generations suspended
-- args: request, window (see _once.lua), paused (1 or 0), end (ms) or -1 for none, by whom, group or ''
-- gives: 1 when that changed anything, 0 when not, nil to ask again
-- include: shared limits once
local q = queue_at(ARGV[2], ARGV[3])
local ends, by, group = tonumber(ARGV[7]), ARGV[8], ARGV[9]
if ends < 0 then ends = FOREVER end
local paused = ARGV[6] == '1' and ends > now

local function resume()
  local before = call('HGET', q.meta, 'paused')
  call('HDEL', q.meta, 'paused')
  if not read_pause(before) then return 0 end
  if call('EXISTS', q.ready, q.scheduled, q.retrying, q.parked, q.closed, q.recheck) > 0 then wake(q) end
  return 1
end

return once(function()
  if group ~= '' then
    if promote(q) then return nil end
    return limits().pause_group(q, group, paused and ends or nil, by) and 1 or 0
  end
  if not paused then return resume() end
  local changed = pause_queue(q, ends, by)
  if ends < FOREVER then wake_by(q, ends) end
  return changed and 1 or 0
end)
