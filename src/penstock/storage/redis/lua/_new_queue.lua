-- The first job of a queue.

-- The start of the keys of a family. No name in a key has a brace.
local function family_start(prefix) return string.match(prefix, '^[^}]*}:') end

-- Note the first job of a queue: its name, and whether its family has a limit.
local function begin_queue(prefix, name)
  call('SADD', KEYS[2], name)
  if sub(name, -9) == '/failures' or redis.pcall('HEXISTS', family_start(prefix) .. 'limit', 'rule') ~= 1 then return end
  local known = tonumber(call('HGET', prefix .. 'meta', 'limited')) or 0
  if floor(known / FAMILY) % 2 == 0 then call('HSET', prefix .. 'meta', 'limited', known + FAMILY) end
end
