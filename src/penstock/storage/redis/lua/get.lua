-- get: jobs by id
-- flags: no-writes
-- keys: jobs runs ends scheduled retrying batches meta generations
-- args: ids...
-- gives: 0 when jobs may have expired: then `expire` first; else {now, and for each id, or for the first ones (send the
--         rest again) {record, run or false, worker or false, end or false, state if it waits or false, part in flows if it has one} or 0, ...}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
if may_expire(q) then return 0 end
local gives = { now }
for i = 4, #ARGV do
  local rec = spend(call('HGET', q.jobs, ARGV[i]))
  if rec then
    local run = call('HGET', q.runs, ARGV[i])
    local worker, ended = run and call('HGET', q.batches, 'w' .. sub(run, 1, 16)), spend(call('HGET', q.ends, ARGV[i]))
    local j = not run and not ended and parse(rec)
    gives[#gives + 1] = { rec, run, worker, ended, j and waiting_state(q, ARGV[i], j) or false,
      has_part(rec) and flows().shown(q, ARGV[i]) or nil }
  else
    gives[#gives + 1] = 0
  end
  if budget <= 0 then break end
end
return gives
