-- The events of this call, while there is a listener: collected here, and published at the end of the script, in one
-- message for each channel. A script that fails in the middle publishes none.
--
-- listener:  owner (16), until (6), length of names and of channel (2 each), names (',completed,failed,'; none: all), channel
-- message:   seal (40), then blocks of events with one name, queue and worker:
--            length of head and of values (4 each), head (msgpack: name, queue, time, worker or false, attempt or a list of
--            them, ids, lengths of results or false, lengths of errors or false; -1 for none), values
-- event_codec.py reads them.
local MAX_MESSAGE = 262144 -- with results and errors of more bytes than this, the events so far are published at once
local find, concat = string.find, table.concat
local secret, by_queue, channels, seen, blocks, bytes = sub(marks[1], 1, SECRET_SIZE), {}, {}, {}, {}, 0

-- Add the listeners of a value to a list; one that is cut off is left out.
local function add_listeners(list, value, at)
  while at + 25 <= #value do
    local names, size = unpack_head('>HH', value, at + 22)
    local last = at + 25 + names + size
    if last > #value then return end
    local channel = sub(value, at + 26 + names, last)
    if not seen[channel] then
      seen[channel] = { channel = channel, names = names > 0 and sub(value, at + 26, at + 25 + names) }
      channels[#channels + 1], list[#list + 1] = seen[channel], seen[channel]
    end
    at = last + 1
  end
end

local to_all = {}
add_listeners(to_all, marks[1], SECRET_SIZE + 1)

local function listeners_of(queue)
  local known = by_queue[queue]
  if known then return known end
  known = { unpack(to_all) }
  local own = queue == ARGV[3] and marks[2]
  if queue ~= ARGV[3] then own = redis.pcall('HGET', KEYS[1], queue) end
  if queue ~= '' and type(own) == 'string' then add_listeners(known, own, 1) end
  by_queue[queue] = known
  return known
end

-- The channels of the listeners that want an event of this name and queue, or false.
function wanted(name, queue)
  local known = listeners_of(queue)
  local to = known[name]
  if to ~= nil then return to end
  to = false
  for _, listener in ipairs(known) do
    if not listener.names or find(listener.names, ',' .. name .. ',', 1, true) then
      to = to or {}
      to[#to + 1] = listener
    end
  end
  known[name] = to
  return to
end

-- Add the events of many jobs: `attempts` is one number or a list, `results` a list or nil.
function add_events(to, name, queue, ids, attempts, worker, results)
  local sizes = results and {}
  for i, result in ipairs(results or {}) do
    sizes[i], bytes = #result, bytes + #result
  end
  blocks[#blocks + 1] = { to = to, head = { name, queue, now, worker or false, attempts, ids, sizes or false, false },
    values = results or {} }
  if bytes > MAX_MESSAGE then publish_events() end
end

-- Add one event, to the last block if it is of the same kind. A job whose id may be unreadable has a block of its own.
function add_event(to, name, queue, id, attempt, worker, result, error)
  local block = blocks[#blocks]
  worker = worker or false
  if not block or not block.open or block.to ~= to or block.head[4] ~= worker or find(id, '[\128-\255]') then
    block = { to = to, head = { name, queue, now, worker, {}, {}, {}, {} }, values = {}, open = true }
    blocks[#blocks + 1] = block
    if find(id, '[\128-\255]') then block.open = false end
  end
  local head, values = block.head, block.values
  local n = #head[6] + 1
  head[5][n], head[6][n] = math.min(attempt, 65535), id
  head[7][n], head[8][n] = result and #result or -1, error and #error or -1
  if result then values[#values + 1] = result end
  if error then values[#values + 1] = error end
  bytes = bytes + (result and #result or 0) + (error and #error or 0)
  if bytes > MAX_MESSAGE then publish_events() end
end

-- Publish the events so far. `scripts.py` calls it at the end of every script.
function publish_events()
  for _, block in ipairs(blocks) do
    local head, values = cmsgpack.pack(block.head), concat(block.values)
    local text = pack('>I4I4', #head, #values) .. head .. values
    for _, listener in ipairs(block.to) do listener[#listener + 1] = text end
  end
  blocks, bytes = {}, 0
  for _, listener in ipairs(channels) do
    if #listener > 0 then
      call('PUBLISH', listener.channel, seal(concat(listener), secret))
      for i = #listener, 1, -1 do listener[i] = nil end
    end
  end
end
