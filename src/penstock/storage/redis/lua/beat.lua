-- beat: record that a worker is alive
-- keys: workers
-- args: worker ttl (0: remove it) info
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
