-- peek: the id of the job that a claim would give next
-- keys: jobs ready scheduled retrying lanes turns holds meta wake
-- args:
-- gives: {again, id or false}
local q = queue_at(ARGV[2], ARGV[3])
if call('HEXISTS', q.meta, 'paused') == 1 then return { 0, false } end
if promote(q) then return { 1, false } end
local first = call('ZRANGE', q.ready, 0, 0)[1]
if not first then return { 0, false } end
if byte(first, 17) == 106 then return { 0, sub(first, 18) } end
local head, at = lane_head(q, sub(first, 18), 1)
return { 0, head[1] and sub(head[1], at) or false }
