-- Error groups: failed jobs whose errors have one key. A group counts its failures; `error_index` has its jobs.
-- A script that needs these helpers builds them, in one table, with the first call.
local built_errors
local function errors()
  if built_errors then return built_errors end
  local E = {}
  local KEY_SIZE, MAX_GROUPS, MAX_TEXT, GROUPS_MS = 16, 200, 200, 1209600000

  -- The key of an error, or nil: it is the last of the six elements of its record. fingerprint.py has the same.
  local function key_of(value)
    if #value < KEY_SIZE + 2 or byte(value, 1) ~= 150 or byte(value, -KEY_SIZE - 1) ~= 160 + KEY_SIZE then return nil end
    return string.match(sub(value, -KEY_SIZE), '^[0-9a-f]+$')
  end

  local function index_member(key, number, id) return key .. pack('>I6', number) .. id end

  -- A text of a group; a long one is cut, before the character that does not fit.
  local function short(text)
    if type(text) ~= 'string' then return '' end
    if #text <= MAX_TEXT then return text end
    return (string.gsub(sub(text, 1, MAX_TEXT), '[\192-\255]?[\128-\191]*$', ''))
  end

  -- The group of a record: first failure, count, type, message, kind, id of the last job. Nil for a damaged one.
  function E.read(record)
    local read, g = pcall(cmsgpack.unpack, record or '')
    if not read or type(g) ~= 'table' or #g ~= 6 or type(g[1]) ~= 'number' or type(g[2]) ~= 'number' then return nil end
    for i = 3, 6 do if type(g[i]) ~= 'string' then return nil end end
    return g
  end

  local function new_group(value)
    local read, e = pcall(cmsgpack.unpack, value)
    if not read or type(e) ~= 'table' then e = { 'UnreadableError', '', 'permanent' } end
    return { now, 0, short(e[1]), short(e[2]), short(e[3]), '' }
  end

  -- Count a failure in its group. The group that was seen longest ago makes room for a new one.
  function E.note(q, id, value)
    local key = key_of(value)
    if not key then return end
    local last = tonumber(call('ZSCORE', q.error_order, key) or -1)
    local g = last > now - GROUPS_MS and E.read(call('HGET', q.errors, key)) or new_group(value)
    g[2], g[6] = g[2] + 1, id
    call('HSET', q.errors, key, cmsgpack.pack(g))
    if call('ZADD', q.error_order, now, key) == 1 and call('ZCARD', q.error_order) > MAX_GROUPS then
      local oldest = call('ZRANGE', q.error_order, 0, 0)[1]
      call('ZREM', q.error_order, oldest)
      call('HDEL', q.errors, oldest)
    end
    call('PEXPIRE', q.errors, GROUPS_MS)
    call('PEXPIRE', q.error_order, GROUPS_MS)
  end

  -- Add a failed job that is kept to the index, or remove one that is gone.
  function E.add(q, id, number, value)
    local key = key_of(value)
    if key then call('ZADD', q.error_index, 0, index_member(key, number, id)) end
  end
  function E.drop(q, id, number, value)
    local key = key_of(value)
    if key then call('ZREM', q.error_index, index_member(key, number, id)) end
  end

  -- Forget groups that were not seen for long. If the index has more members than jobs have failed, some are damaged.
  function E.purge(q)
    local old = call('ZRANGEBYSCORE', q.error_order, '-inf', now - GROUPS_MS, 'LIMIT', 0, MAX_GROUPS)
    if #old > 0 then
      call('ZREM', q.error_order, unpack(old))
      call('HDEL', q.errors, unpack(old))
    end
    if call('ZCARD', q.error_index) <= call('ZCARD', q.failed) then return end
    for _, member in ipairs(call('ZRANGE', q.error_index, 0, PROMOTE - 1)) do
      local id = sub(member, KEY_SIZE + 7)
      local ended = spend(call('HGET', q.ends, id))
      local state, _, _, number, _, _, value = parse_end(ended or '')
      local key = ended and state == 'failed' and key_of(value)
      if not key or index_member(key, number, id) ~= member then
        call('ZREM', q.error_index, member)
        damaged(q, 1)
      end
      if budget <= 0 then break end
    end
  end
  built_errors = E
  return E
end
