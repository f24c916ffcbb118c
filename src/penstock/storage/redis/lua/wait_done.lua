-- wait_done: ask for notices of the ends of jobs
-- flags: allow-oom
-- keys: jobs ends waits
-- args: channel ids...
-- gives: a list of 1 (it has ended already or is not there) or 0
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])
local channel = ARGV[4]
local gives = {}
for i = 5, #ARGV do
  local id = ARGV[i]
  if call('HEXISTS', q.jobs, id) == 0 or call('HEXISTS', q.ends, id) == 1 then
    gives[#gives + 1] = 1
  else
    add_waiter(q, id, channel)
    gives[#gives + 1] = 0
  end
end
return gives
