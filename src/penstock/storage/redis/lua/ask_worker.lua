-- ask_worker: keep a request for a live worker until its next heartbeat
-- flags: allow-oom
-- keys: workers
-- args: worker, request, for how long (ms), channel of the worker, key of requests
-- gives: 1, or 0 when there is no live worker of this id
-- include: shared
local workers, worker, requests, ms = ARGV[2], ARGV[4], ARGV[8], tonumber(ARGV[6])
local record = call('HGET', workers, worker)
if not record or #record < 12 or select(2, unpack_head('>I6I6', record)) <= now then return 0 end
call('HSET', requests, worker, pack('>I6', now + ms) .. ARGV[5])
call('PEXPIRE', requests, ms)
call('PUBLISH', ARGV[7], '')
return 1
