-- revive: failed or cancelled (or completed, if asked) -> queued at the end of the order, or suspended; all counts zero
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index limits gates closed recheck idle_gates meta waits wake error_order errors gone attempts log stream generations notices suspended successors
-- args: request, window (see _once.lua), 1 for completed jobs too, 1 to forget their journals, ids...
-- gives: a list, which may end early (send the rest again), of 1 (revived) or 0
-- include: shared transitions expiry reviving once
local q = queue_at(ARGV[2], ARGV[3])

return once(function()
  promote(q)
  expire(q)
  local gives = {}
  for i = 8, #ARGV do
    gives[#gives + 1] = revive_one(q, ARGV[i], ARGV[6] == '1', ARGV[7] == '1')
    if effects then notices().apply(q) end
    if budget <= 0 then break end
  end
  return gives
end)
