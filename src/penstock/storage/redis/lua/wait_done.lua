-- wait_done: ask for notices of the ends of jobs, or take such requests back
-- flags: allow-oom
-- keys: jobs ends waits
-- args: join or leave, waiter (secret and channel), ids...; an id with READER after it asks for notices of its histories
-- gives: a list of 1 (it has ended already or is not there), 2 (it has too many waiters, look again later) or 0
-- include: shared transitions
local q = queue_at(ARGV[2], ARGV[3])
local change, waiter = ARGV[4], ARGV[5]
local gives = {}
local function is_unfinished(id) return call('HEXISTS', q.jobs, id) == 1 and call('HEXISTS', q.ends, id) == 0 end
for i = 6, #ARGV do
  local id = ARGV[i]
  if change == 'leave' then
    remove_waiter(q, id, waiter)
    gives[#gives + 1] = 0
  elseif not is_unfinished(id) and not (sub(id, -2) == READER and is_unfinished(sub(id, 1, -3))) then
    gives[#gives + 1] = 1
  else
    gives[#gives + 1] = add_waiter(q, id, waiter) and 0 or 2
  end
end
return gives
