-- revive: failed or cancelled -> queued at the end of the order, all counts zero
-- flags: allow-oom
-- keys: jobs ends ready scheduled retrying lanes turns holds parked backoffs completed failed cancelled meta wake
-- args: ids...
-- gives: a list of 1 (revived) or 0
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])

local function revive_one(id)
  local ended = call('HGET', q.ends, id)
  local j = ended and parse(call('HGET', q.jobs, id))
  if not j then return 0 end
  local state, _, expires = parse_end(ended)
  if state == 'completed' or (expires ~= 0 and expires <= now) then return 0 end
  forget_end(q, id, ended)
  j.time, j.seq, j.due = acceptance(q), next_seq(q), now
  j.attempts, j.retries, j.stalls, j.timeouts = 0, 0, 0, 0
  j.retried, j.solo, j.error, j.settled = false, false, '', ''
  store(q, id, j)
  emit('enqueued', q, id, 0)
  return 1
end

promote(q)
local gives = {}
for i = 4, #ARGV do gives[#gives + 1] = revive_one(ARGV[i]) end
return gives
