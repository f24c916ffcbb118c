-- group_jobs: the failed jobs of an error group, the one that failed last first
-- flags: no-writes
-- keys: jobs ends error_index generations
-- args: error key, position to go on after (number and id) or '', limit
-- gives: {now, position to go on after or false, {id, record, end, part in flows if it has one}, ...}, fewer if they are long
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local key, limit = ARGV[4], tonumber(ARGV[6])
local from = ARGV[5] == '' and '(' .. key .. '\255' or '(' .. key .. ARGV[5]
local members = call('ZREVRANGEBYLEX', q.error_index, from, '[' .. key, 'LIMIT', 0, limit)
local rows, last = { now, false }, nil
for _, member in ipairs(members) do
  local id = sub(member, 23)
  local rec, ended = spend(call('HGET', q.jobs, id)), spend(call('HGET', q.ends, id))
  last = sub(member, 17)
  if rec and ended then rows[#rows + 1] = { id, rec, ended, has_part(rec) and flows().shown(q, id) or nil } end
  if budget <= 0 then break end
end
if last and (budget <= 0 or #members == limit) then rows[2] = last end
return rows
