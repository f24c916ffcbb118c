-- put_bulk: store a bulk action if its version is unchanged
-- flags: allow-oom
-- keys: bulk
-- args: request, window (see _once.lua), id, version, record, how many are kept, for how long (ms)
-- gives: the new version, or 0 when it is another
-- include: shared once
local bulk, id, version, kept, most = ARGV[2], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[10]), tonumber(ARGV[9])

-- version and time of the last change of a record, 0 and 0 if it is damaged or too old
local function parse_bulk(record)
  if not record or #record < 12 then return 0, 0 end
  local number, at = unpack_head('>I6I6', record)
  if at <= now - kept then return 0, 0 end
  return number, at
end

local function delete_old()
  local all, live = call('HGETALL', bulk), {}
  for i = 1, #all, 2 do
    local _, at = parse_bulk(all[i + 1])
    if at == 0 then call('HDEL', bulk, all[i]) else live[#live + 1] = { at, all[i] } end
  end
  table.sort(live, function(a, b) return a[1] > b[1] or a[1] == b[1] and a[2] < b[2] end)
  for i = most + 1, #live do call('HDEL', bulk, live[i][2]) end
end

return once(function()
  if parse_bulk(call('HGET', bulk, id)) ~= version then return 0 end
  call('HSET', bulk, id, pack('>I6I6', version + 1, now) .. ARGV[8])
  if version == 0 then delete_old() end
  call('PEXPIRE', bulk, kept)
  return version + 1
end)
