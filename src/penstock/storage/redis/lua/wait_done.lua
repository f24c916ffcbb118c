-- wait_done: ask to be told when a job ends
-- uses: moves
-- keys: jobs ends waits
-- args: id channel
-- gives: 1 when it has ended already or is not there, else 0
local q = queue_at(ARGV[2], ARGV[3])
local id, channel = ARGV[4], ARGV[5]
if call('HEXISTS', q.jobs, id) == 0 or call('HEXISTS', q.ends, id) == 1 then return 1 end
add_waiter(q, id, channel)
return 0
