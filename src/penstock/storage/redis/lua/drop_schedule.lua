-- drop_schedule: a schedule -> gone, if its version is unchanged; its jobs stay
-- flags: allow-oom
-- keys: meta schedules ticks
-- args: request, window (see _once.lua), name, version
-- gives: 1 when it was deleted
-- include: shared schedules once
local q = queue_at(ARGV[2], ARGV[3])
return once(function()
  local s = find_schedule(q, ARGV[6])
  if not s or s.version ~= tonumber(ARGV[7]) then return 0 end
  forget_schedule(q, ARGV[6], s)
  reset_tick(q)
  return 1
end)
