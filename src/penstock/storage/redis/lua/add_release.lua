-- add_release: note a release, unless one of its name is kept
-- flags: allow-oom
-- keys: releases
-- args: request, window (see _once.lua), name, how many are kept
-- gives: 1, or 0
-- include: shared once
local releases, name = ARGV[2], ARGV[6]
return once(function()
  for _, release in ipairs(call('LRANGE', releases, 0, -1)) do
    if sub(release, 7) == name then return 0 end
  end
  call('LPUSH', releases, pack('>I6', now) .. name)
  call('LTRIM', releases, 0, tonumber(ARGV[7]) - 1)
  return 1
end)
