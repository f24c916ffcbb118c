-- beat: record that a worker is alive; one that comes or leaves also deletes records that have expired
-- flags: allow-oom
-- keys: workers
-- args: worker ttl (0: remove it) info
-- gives: 1
-- include: shared
local workers = ARGV[2]
local worker, ttl, info = ARGV[4], tonumber(ARGV[5]), ARGV[6]
local KEPT_MS = 60000 -- the table is kept for longer than its last record, because `workers` deletes nothing

local function delete_expired()
  local over, all = {}, call('HGETALL', workers)
  for i = 1, #all, 2 do
    local until_ms = #all[i + 1] >= 12 and unpack_head('>I6', all[i + 1], 7) or 0 -- a damaged one has expired
    if until_ms <= now then over[#over + 1] = all[i] end
  end
  if #over > 0 then call('HDEL', workers, unpack(over, 1, math.min(#over, 1000))) end
end

if ttl == 0 then
  call('HDEL', workers, worker)
  delete_expired()
else
  if call('HSET', workers, worker, pack('>I6I6', now, now + ttl) .. info) == 1 then delete_expired() end
  call('PEXPIRE', workers, ttl + KEPT_MS, 'NX')
  call('PEXPIRE', workers, ttl + KEPT_MS, 'GT')
end
return 1
