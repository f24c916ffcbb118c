-- beat: say that a worker is there
-- keys: workers
-- args: worker ttl (0: take it off the list) info
-- gives: 1
-- include: shared
local workers = ARGV[2]
local worker, ttl, info = ARGV[4], tonumber(ARGV[5]), ARGV[6]
if ttl == 0 then
  call('HDEL', workers, worker)
else
  call('HSET', workers, worker, pack('>I6I6', now, now + ttl) .. info)
end
return 1
