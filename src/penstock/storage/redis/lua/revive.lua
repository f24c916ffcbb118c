-- revive: failed or cancelled (or completed, if asked) -> queued at the end of the order, all counts zero
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows completed failed cancelled error_index limits gates closed recheck idle_gates meta waits wake
-- args: request, window (see _once.lua), 1 for completed jobs too, ids...
-- gives: a list, which may end early (send the rest again), of 1 (revived) or 0
-- include: shared transitions expiry once
local q = queue_at(ARGV[2], ARGV[3])

local function revive_one(id)
  local ended = spend(call('HGET', q.ends, id))
  local j = ended and parse(spend(call('HGET', q.jobs, id)))
  if not j then return 0 end
  local state, _, expires = parse_end(ended)
  if (state == 'completed' and ARGV[6] ~= '1') or (expires ~= 0 and expires <= now) then return 0 end
  forget_end(q, id, ended)
  j.time, j.seq, j.due = acceptance(q), next_seq(q), now
  j.attempts, j.retries, j.stalls, j.timeouts = 0, 0, 0, 0
  j.retried, j.solo, j.start_by, j.error, j.settled, j.earliest = false, false, nil, '', '', 0
  windows().take(q, id, j)
  store(q, id, j)
  emit('enqueued', q, id, 0)
  return 1
end

return once(function()
  promote(q)
  expire(q)
  local gives = {}
  for i = 7, #ARGV do
    gives[#gives + 1] = revive_one(ARGV[i])
    if budget <= 0 then break end
  end
  return gives
end)
