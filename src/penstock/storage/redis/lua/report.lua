-- report: attach progress to a run
-- flags: allow-oom
-- keys: jobs runs blocked meta
-- args: id token progress
-- gives: 1, or 0 when the claim is lost
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local held = call('HGET', q.runs, ARGV[4])
if not held or sub(held, 1, 16) ~= ARGV[5] then return 0 end
local run = run_of(q, ARGV[4], held)
run.progress = ARGV[6]
call('HSET', q.runs, ARGV[4], build_run(run))
return 1
