-- take_minute: the first call in a minute takes it, and samples all queues
-- flags: allow-oom
-- keys: of no queue
-- args:
-- gives: {time (ms), 1 if this call has taken the minute}
local minute = floor(now / 60000)
if redis.pcall('GET', ARGV[2] .. 'minute') == tostring(minute) then return { now, 0 } end
call('SET', ARGV[2] .. 'minute', tostring(minute), 'PX', 3600000)
return { now, 1 }
