-- holders: the runs of a queue, or of a group of it, that began first
-- flags: allow-oom
-- keys: runs leases batches meta
-- args: group or '' for all, how many
-- gives: {id, time of the claim (6 bytes) and worker, begin (ms)}, ...: at least this number if there are, and all that began with the last of them
-- include: shared claims
local q = queue_at(ARGV[2], ARGV[3])
local group, most = ARGV[4], tonumber(ARGV[5])
local gives, last = {}, 0
walk_runs(q, '', function(id, run, position)
  local begun = unpack_head('>I6', position)
  if #gives >= most and begun > last then return false end
  if group == '' or group_of_run(run) == group then
    gives[#gives + 1] = { id, call('HGET', q.batches, 'w' .. sub(run, 1, 16)) or '', begun }
    last = begun
  end
  return true
end)
return gives
