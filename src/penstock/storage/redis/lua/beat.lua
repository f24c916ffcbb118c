-- beat: record that a worker is alive; one that comes or leaves also deletes records that have expired
-- flags: allow-oom
-- keys: workers
-- args: worker ttl (0: remove it) info, key of requests
-- gives: what the worker is asked for, or ''
-- include: shared
local workers = ARGV[2]
local worker, ttl, info, requests = ARGV[4], tonumber(ARGV[5]), ARGV[6], ARGV[7]
local KEPT_MS = 60000 -- the table is kept for longer than its last record, because `workers` deletes nothing

-- Of many records a random part, so that each is found in time and no call reads all.
local PART = 500

local function delete_expired()
  local over, all = {}, call('HRANDFIELD', workers, PART, 'WITHVALUES')
  for i = 1, #all, 2 do
    local until_ms = #all[i + 1] >= 12 and unpack_head('>I6', all[i + 1], 7) or 0 -- a damaged one has expired
    if until_ms <= now then over[#over + 1] = all[i] end
  end
  if #over > 0 then call('HDEL', workers, unpack(over)) end
end

-- A request from before this worker came is for another one of its id.
local function request_of()
  local request = call('HGET', requests, worker)
  if not request then return '' end
  if #request > 6 and unpack_head('>I6', request) > now then return sub(request, 7) end
  call('HDEL', requests, worker)
  return ''
end

local asked = ''
if ttl == 0 then
  call('HDEL', workers, worker)
  call('HDEL', requests, worker)
  delete_expired()
else
  local old = call('HGET', workers, worker)
  call('HSET', workers, worker, pack('>I6I6', now, now + ttl) .. info)
  if not old then delete_expired() end
  if not old or #old < 12 or select(2, unpack_head('>I6I6', old)) <= now then
    call('HDEL', requests, worker)
  else
    asked = request_of()
  end
  call('PEXPIRE', workers, ttl + KEPT_MS, 'NX')
  call('PEXPIRE', workers, ttl + KEPT_MS, 'GT')
end
return asked
