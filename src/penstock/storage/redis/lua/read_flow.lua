-- read_flow: the checkpoints or the dependencies of a job
-- flags: no-writes
-- keys: jobs ends generations
-- args: id, 'journal' or 'dependencies', number after which they begin, limit
-- gives: nil when there is no such job, or {1 when there are more, then {number, name, kind, value} of each checkpoint, or
--        {number, queue, id, letter of its end ('o': open), value or false} of each dependency}
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local id, after, limit = ARGV[4], tonumber(ARGV[6]), tonumber(ARGV[7])
local ended = call('HGET', q.ends, id)
local expires = ended and select(3, parse_end(ended)) or 0
if call('HEXISTS', q.jobs, id) == 0 or expires ~= 0 and expires <= now then return nil end
local g = flows().load(q, id)
if not g then return { 0 } end
local read = ARGV[5] == 'journal' and flows().read_journal or flows().read_dependencies
local found, more = read(q, g, after, limit)
return { more and 1 or 0, unpack(found) }
