-- The ends of runs: the part that the fast path of settle needs.

-- Publish the end of a job to these waiters, with its result or error if that is short; else the state is 0 and the
-- client must read the job. A waiter without a channel only keeps the job.
local function notify_channels(waiters, q, id, state, value)
  if #value > MAX_NOTICE then state, value = 0, '' end
  local notice, at = pack('>HHB', #q.name, #id, state) .. q.name .. id .. value, 1
  while at < #waiters do -- a damaged list may end in the middle of a size
    local size = unpack_head('>H', waiters, at)
    if size > SECRET_SIZE then
      local channel = at + 2 + SECRET_SIZE
      call('PUBLISH', sub(waiters, channel, at + 1 + size), seal(notice, sub(waiters, at + 2, channel - 1)))
    end
    at = at + 2 + size
  end
  call('HDEL', q.waits, id)
end

-- Call a function with the id and the record of each run. There are no more than the workers hold; still, this is only
-- for repairs.
local function each_run(q, visit)
  local ids = call('HKEYS', q.runs)
  for at = 1, #ids, 1000 do
    for i, run in ipairs(call('HMGET', q.runs, unpack(ids, at, math.min(at + 999, #ids)))) do
      visit(ids[at + i - 1], run)
    end
  end
end

-- The ids of the runs of a token.
local function find_runs(q, token)
  local ids = {}
  each_run(q, function(id, run) if sub(run, 1, 16) == token then ids[#ids + 1] = id end end)
  return ids
end

-- Count the runs of a token, and store the number, which was damaged.
local function recount_runs(q, token)
  local left = #find_runs(q, token)
  damaged(q, 1)
  if left > 0 then call('HSET', q.batches, 'n' .. token, left) end
  return left
end

-- Count down the runs of a token, after they were removed, and remove its lease with the last. `held` is their number
-- before, if known.
local function end_runs(q, token, count, held)
  if held and held <= count or (add_to(q.batches, 'n' .. token, -count) or recount_runs(q, token)) <= 0 then
    local parted = call('HDEL', q.batches, 'n' .. token, 'b' .. token, 'w' .. token, 'p' .. token) > 3
    call('ZREM', q.leases, token, '!' .. token)
    local part = token .. '~1'
    while parted and call('HDEL', q.batches, 'b' .. part) == 1 do
      call('ZREM', q.leases, part)
      part = token .. '~' .. tonumber(sub(part, 18)) + 1
    end
  end
end

-- The group of a run ('' for none), or nil if its record is damaged.
local function group_of_run(run)
  if #run == 16 then return '' end
  if #run < 27 then return nil end
  local high, low = byte(run, 25, 26)
  local size = high * 256 + low
  return #run >= 27 + size and sub(run, 27, 26 + size) or nil
end

-- The same of a plain run of this token: no cancel was requested and no successor is behind it. Else nil. True follows for
-- a run of a limited queue.
local function group_of_plain_run(run, token)
  if string.find(run, token, 1, true) ~= 1 then return nil end
  if string.find(run, GROUP_RUN, 17, true) == 17 then return group_of_run(run), false end
  if string.find(run, LIMITED_RUN, 17, true) == 17 then return group_of_run(run), true end
  return nil
end

-- Take sequence numbers; gives the last of them. A damaged counter continues at the time in ms: that is above all numbers
-- in use, unless there were more than a thousand jobs per second since 1970.
local function take_seq(q, count)
  local last = add_to(q.meta, 'seq', count)
  if not last then
    damaged(q, 1)
    last = now + count
    call('HSET', q.meta, 'seq', last)
  end
  return last
end

-- Count the jobs that hold a group, and store the number, which was damaged.
local function recount_holds(q, group)
  local prefix = lane_prefix(group)
  local count = call('ZLEXCOUNT', q.backoffs, '[' .. prefix, '(' .. prefix .. '\255')
  each_run(q, function(_, run) if group_of_run(run) == group then count = count + 1 end end)
  damaged(q, 1)
  call('HSET', q.holds, group, count)
  return count
end

-- Release the holds of runs that ended, given by their groups in the order of their ends. Groups with jobs and no other
-- hold join the rotation, in the order in which their last runs ended.
local function free_groups(q, ended)
  local groups, count = {}, {}
  for i = #ended, 1, -1 do
    local group = ended[i]
    if not count[group] then groups[#groups + 1] = group end
    count[group] = (count[group] or 0) + 1
  end
  local holds, free = call('HMGET', q.holds, unpack(groups)), {}
  for i = #groups, 1, -1 do
    local before = to_number(holds[i] or 0, false)
    local left = before and before - count[groups[i]] or recount_holds(q, groups[i])
    if left > 0 then
      call('HSET', q.holds, groups[i], left)
    else
      free[#free + 1] = groups[i]
    end
  end
  if #free == 0 then return end
  call('HDEL', q.holds, unpack(free))
  local seq, ready, turns = take_seq(q, #free) - #free, {}, {}
  for i, group in ipairs(free) do
    local head = lane_head(q, group, '1')[1]
    if head then
      local at, member = #ready, rank(0, now, seq + i) .. 'g' .. group
      ready[at + 1], ready[at + 2] = '0', member
      turns[at + 1], turns[at + 2] = group, member .. head
    end
  end
  if #ready == 0 then return end
  call('ZADD', q.ready, unpack(ready))
  call('HSET', q.turns, unpack(turns))
  wake(q)
end
