-- cancel: waiting or blocked -> cancelled; a running job is treated as the mode demands
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake generations notices suspended successors
-- args: request, window (see _once.lua), mode, ttl (-1: for ever), start of the channels of workers, ids...
-- gives: a number for each id, or for the first ones (send the rest again): its status, + 8 when a run goes on, + 16 when it was so already
-- include: shared transitions expiry cancelling once
local q = queue_at(ARGV[2], ARGV[3])
local mode, ttl = CANCEL[ARGV[6]], tonumber(ARGV[7])
local kept = ttl >= 0 and ttl or nil
return once(function()
  promote(q)
  expire(q)
  local gives = {}
  for i = 9, #ARGV do
    gives[#gives + 1] = cancel_one(q, ARGV[i], mode, kept, ARGV[8])
    if effects then notices().apply(q) end
    if budget <= 0 then break end
  end
  return gives
end)
