-- set_limit: set or remove a limit if its version is still the one given
-- flags: allow-oom
-- keys: jobs runs ends ready scheduled retrying lanes turns holds parked backoffs expiring limits settings ruled gates closed recheck idle_gates meta wake generations suspended
-- args: request, window (see _once.lua), 'queue', 'groups', 'group', 'family' or 'mark', group or '', rule or '', settings,
--       version, then of a family prefix and name of each of its queues; 'mark' only marks these as limited
-- gives: the new version, 0 when it was removed, -1 when its version is another, nil to ask again
-- include: shared limits once
local q = queue_at(ARGV[2], ARGV[3])
local kind, group, rule, settings, version = ARGV[6], ARGV[7], ARGV[8], ARGV[9], tonumber(ARGV[10])
local FIELDS = { queue = '', groups = 'g', group = 'g' .. group }

local queues = {}
for i = 11, #ARGV, 2 do queues[#queues + 1] = queue_at(ARGV[i], ARGV[i + 1]) end

return once(function()
  if kind == 'mark' then
    limits().mark(queues)
    return 0
  end
  if kind == 'family' then
    return limits().set_family(family_start(q.prefix) .. 'limit', queues, rule, settings, version)
  end
  return limits().set(q, FIELDS[kind], rule, settings, version)
end)
