-- wait_done: ask for notices of the ends of jobs, or take such requests back
-- flags: allow-oom
-- keys: jobs ends waits
-- args: join or leave, waiter (secret and channel), ids...
-- gives: a list of 1 (it has ended already or is not there), 2 (it has too many waiters, look again later) or 0
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])
local change, waiter = ARGV[4], ARGV[5]
local gives = {}
for i = 6, #ARGV do
  local id = ARGV[i]
  if change == 'leave' then
    remove_waiter(q, id, waiter)
    gives[#gives + 1] = 0
  elseif call('HEXISTS', q.jobs, id) == 0 or call('HEXISTS', q.ends, id) == 1 then
    gives[#gives + 1] = 1
  else
    gives[#gives + 1] = add_waiter(q, id, waiter) and 0 or 2
  end
end
return gives
