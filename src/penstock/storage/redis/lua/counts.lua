-- counts: the number of jobs in each state
-- flags: no-writes
-- keys: runs blocked ready scheduled retrying lanes turns parked completed failed cancelled settings ruled gates meta suspended
-- args:
-- gives: 0 when jobs may have expired: then `expire` first; else {scheduled, queued, blocked, running, retrying, completed,
--         failed, cancelled, suspended, 1 if it is paused, has limits or a paused group}
-- include: shared counts
local q = queue_at(ARGV[2], ARGV[3])
if may_expire(q) then return 0 end

-- Whether the queue is listed without jobs: it is paused, has limits, or a paused group.
local function is_kept()
  local known = call('HMGET', q.meta, 'paused', 'limited')
  if read_pause(known[1]) then return true end
  if not known[2] then return false end
  if call('EXISTS', q.settings) == 1 then return true end
  for _, group in ipairs(call('ZRANGE', q.ruled, 0, -1)) do
    if read_group_pause(call('HGET', q.gates, group)) then return true end
  end
  return false
end

local gives = counts_of(q)
gives[10] = is_kept() and 1 or 0
return gives
