-- fire: ticks -> jobs, and the cursor moves, if the version of the schedule is unchanged
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake schedules ticks generations notices suspended successors
-- args: request, window (see _once.lua), start of the channels of workers, firings (msgpack: a list of name and firing, see
--       read_firing), blobs...
-- gives: for each firing {version, 1 when it was stale, fired, skipped, dropped, known, places of the ticks that were put}
-- include: shared transitions expiry cancelling schedules firing once
local q = queue_at(ARGV[2], ARGV[3])
blobs = 7

local function fire_one(name, firing)
  local s, old = find_schedule(q, name)
  if not s or s.version ~= firing[1] then return { s and s.version or 0, 1, 0, 0, 0, 0, {} } end
  local answer = carry_out(q, s, firing, ARGV[6])
  s.version = next_version(s.version)
  store_schedule(q, name, s, old)
  return { s.version, 0, unpack(answer) }
end

return once(function()
  local gives = {}
  for i, each in ipairs(cmsgpack.unpack(ARGV[7])) do gives[i] = fire_one(each[1], each[2]) end
  reset_tick(q)
  return gives
end)
