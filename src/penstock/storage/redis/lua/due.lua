-- due: the schedules whose next tick has come, for the worker that holds the alarm of their queue
-- flags: allow-oom
-- keys: meta schedules ticks
-- args: worker ('' for one that does not look again), how many, after how many ms others help, after how many ms they look again
-- gives: {when to look again or false, name, record, ...}
-- include: shared schedules
local q = queue_at(ARGV[2], ARGV[3])
local worker, most, help, look = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
local known = call('HMGET', q.meta, 'tick', 'ticker')
if not known[1] then return { false } end
local first = to_number(known[1])
if worker ~= '' and known[2] ~= worker then
  if known[2] and now < first + help then return { math.min(first + help, now + look) } end
  call('HSET', q.meta, 'ticker', worker)
end
if first > now then return { first } end

local gives, after, repaired = { now }, '[' .. LIST_TICKS, false
for _ = 1, 10 do -- more if some have expired
  local entries = call('ZRANGEBYLEX', q.ticks, after, '(' .. LIST_TICKS .. pack('>I6', now + 1), 'LIMIT', 0, most)
  for _, entry in ipairs(entries) do
    if #gives > 2 * most or budget <= 0 then break end
    local name = sub(entry, 8)
    local rec = spend(call('HGET', q.schedules, name))
    local s = parse_schedule(rec)
    if not s or not s.next or timed_entry(LIST_TICKS, s.next, name) ~= entry then
      repair_entry(q, entry, name, rec, s)
      repaired = true
    elseif is_live(s) then
      gives[#gives + 1] = name
      gives[#gives + 1] = rec
    end
    after = '(' .. entry
  end
  if #entries < most or #gives > 2 * most or budget <= 0 then break end
end
if repaired or #gives == 1 then reset_tick(q) end
if #gives == 1 then gives[1] = now + look end
return gives
