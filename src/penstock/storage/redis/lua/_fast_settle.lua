-- The fast path of settle: completions of plain runs are written together. It must equal `settle_one` for each of
-- them; tests/storage/test_fast_and_slow.py compares the two. It stands before the helpers that it does not need.

-- The ids of these runs, the groups of those that have one, and the channels of their waiters. Nil unless all are plain:
-- their tokens are right, no cancel was requested, no successor is behind them. Nil also if jobs are due that take their
-- turns before these groups do.
local function plain_runs(parts)
  local ids, groups, at = {}, {}, 0
  for i = 6, #ARGV, 2 do ids[#ids + 1] = ARGV[i] end
  local runs = call('HMGET', q.runs, unpack(ids))
  for _, part in ipairs(parts) do
    local token = part[1]
    for i = at + 1, at + part[3] do
      local run = runs[i]
      if run ~= token then
        local group = run and group_of_plain_run(run, token)
        if not group then return nil end
        if group ~= '' then groups[#groups + 1] = group end
      end
    end
    at = at + part[3]
  end
  if #groups > 0 and (next_due(q) or FOREVER) <= now then return nil end
  local awaited = #ids == 1 or call('EXISTS', q.waits) == 1
  return ids, groups, awaited and call('HMGET', q.waits, unpack(ids)) or {}
end

-- The answer of settle, or nil if one of the runs is not plain.
local function complete_together(parts)
  local ids, groups, waiters = plain_runs(parts)
  local last = ids and add_to(q.meta, 'finished', #ids)
  if not last then return nil end -- also if that counter is damaged
  local number, at, ends, done, held = last - #ids, 6, {}, {}, {}
  for _, part in ipairs(parts) do
    local token, ttl, count = part[1], part[2], part[3]
    local batch = call('HMGET', q.batches, 'w' .. token, 'n' .. token)
    local worker, expires = batch[1] or '', ttl > 0 and now + ttl or 0
    local before = pack('>BI6I6', 1, now, expires) -- as `build_end`
    local after = pack('>BBH', COUNT_ATTEMPT, #token, #worker) .. token .. worker
    local expiry = pack('>I6', expires == 0 and FOREVER or expires) -- as `end_member`
    for i = at, at + 2 * count - 2, 2 do
      number = number + 1
      local id, position = ARGV[i], pack('>I6', number)
      ends[i - 5], ends[i - 4] = id, before .. position .. after .. ARGV[i + 1]
      done[i - 5], done[i - 4] = '0', expiry .. position .. id
    end
    at = at + 2 * count
    held[#held + 1] = to_number(batch[2], false)
  end
  call('HSET', q.ends, unpack(ends))
  call('ZADD', q.completed, unpack(done))
  call('HDEL', q.runs, unpack(ids))
  for i, part in ipairs(parts) do end_runs(q, part[1], part[3], held[i]) end
  if #groups > 0 then free_groups(q, groups) end
  for i, channels in ipairs(waiters) do
    if channels then notify_channels(channels, q, ids[i], 1, ARGV[5 + 2 * i]) end
  end
  return 1
end
