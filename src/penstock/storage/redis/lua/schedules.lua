-- schedules: a page of the schedules of a queue, by name
-- flags: no-writes
-- keys: schedules ticks
-- args: name after which the page begins or '', how many
-- gives: {1 when there are more, name, record, ...}
-- include: shared schedules
local q = queue_at(ARGV[2], ARGV[3])
local limit, after = tonumber(ARGV[5]), '(' .. LIST_NAMES .. ARGV[4]
local gives = { 0 }
while true do
  local entries = call('ZRANGEBYLEX', q.ticks, after, '(o', 'LIMIT', 0, 100)
  for _, entry in ipairs(entries) do
    local name = sub(entry, 2)
    local rec = call('HGET', q.schedules, name)
    if is_live(parse_schedule(rec)) then
      if #gives > 2 * limit or budget <= 0 then
        gives[1] = 1
        return gives
      end
      gives[#gives + 1] = name
      gives[#gives + 1] = spend(rec)
    end
    after = '(' .. entry
  end
  if #entries < 100 then return gives end
end
