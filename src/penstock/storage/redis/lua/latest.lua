-- latest: ended jobs of one state, those that are kept longest first
-- flags: no-writes
-- keys: jobs ends completed failed cancelled generations
-- args: state limit
-- gives: {now, {id, record, end, part in flows if it has one}, ...}, fewer if they are long
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local rows = { now }
for _, member in ipairs(call('ZREVRANGE', q[ARGV[4]], 0, tonumber(ARGV[5]) - 1)) do
  local id = sub(member, 13)
  local rec, ended = spend(call('HGET', q.jobs, id)), spend(call('HGET', q.ends, id))
  if rec and ended then rows[#rows + 1] = { id, rec, ended, has_part(rec) and flows().shown(q, id) or nil } end
  if budget <= 0 then break end
end
return rows
