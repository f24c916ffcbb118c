-- set_schedule: nothing or an older version -> a schedule, after the ticks that were due before the change
-- flags:
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows batches completed failed cancelled error_index error_order errors gone limits gates closed recheck idle_gates attempts log stream meta waits wake schedules ticks generations notices suspended successors
-- args: request, window (see _once.lua), start of the channels of workers, name, version (0: none), record (msgpack: cursor,
--       next tick, id and nominal time of the last one, fired, skipped, missed, dropped, expiry; false stands for none),
--       firing (msgpack, see read_firing) or '', spec, blobs...
-- gives: the new version, or 0 when the version is another
-- include: shared transitions expiry cancelling schedules firing once
local q = queue_at(ARGV[2], ARGV[3])
blobs = 11

local function set_schedule(name, version)
  local old, times = find_schedule(q, name)
  if version ~= (old and old.version or 0) then return 0 end
  local cursor, next, last_id, last_at, fired, skipped, missed, dropped, expires = unpack(cmsgpack.unpack(ARGV[9]))
  local base = old or { last_id = last_id or nil, last_at = last_at or nil, fired = fired, skipped = skipped,
    missed = missed, dropped = dropped }
  if ARGV[10] ~= '' then carry_out(q, base, cmsgpack.unpack(ARGV[10]), ARGV[6]) end
  base.version, base.spec = next_version(version), ARGV[11]
  base.cursor, base.next, base.expires = cursor, next or nil, expires or nil
  local first = call('HGET', q.meta, 'tick')
  store_schedule(q, name, base, times)
  call('SADD', KEYS[2], q.name)
  reset_tick(q)
  if base.next and (not first or base.next < to_number(first)) then
    -- Some worker must learn of it before the holder of the alarm looks again.
    call('HDEL', q.meta, 'ticker')
    wake(q)
  end
  return base.version
end

return once(function() return set_schedule(ARGV[7], tonumber(ARGV[8])) end)
