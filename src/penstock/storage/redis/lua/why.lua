-- why: the position of a job, and of the job of its group that must end before it
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches completed failed cancelled meta waits wake
-- args: id, most, position of the run after which to look for that of its group
-- gives: {1, position} to ask again, or {0, now, paused since or false, job or false, head of its group or false}; a
--         job is {id, record, run or
--         false, worker or false, end or false, state if it waits or false, lease or false, 1 with a successor,
--         position in the order, at most `most`, or false}
-- include: shared expiry claims
local q = queue_at(ARGV[2], ARGV[3])
local most = tonumber(ARGV[5])
if unpark(q) or promote(q) or expire(q) then return { 1, ARGV[6] } end

local function lease_of(token, id)
  local _, part_of = parts_of(q, token)
  return call('ZSCORE', q.leases, part_of[id] or token)
end

local function position_of(id, j)
  local turn = j.group and call('HGET', q.turns, j.group)
  local member = turn and member_of(turn, j.group) or rank(j.priority, j.time, j.seq) .. 'j' .. id
  local before = not j.rest and call('ZRANK', q.ready, member)
  return before and math.min(before, most)
end

local function look(id)
  local rec = call('HGET', q.jobs, id)
  if not rec then return false end
  local run, ended, lease, worker, successor = call('HGET', q.runs, id), call('HGET', q.ends, id), false, false, 0
  if run then
    local token = sub(run, 1, 16)
    worker, lease, successor = call('HGET', q.batches, 'w' .. token), lease_of(token, id), call('HEXISTS', q.blocked, id)
  end
  local j = not run and not ended and parse(rec)
  local state = j and waiting_state(q, id, j) or false
  local before = state == 'queued' and position_of(id, j)
  return { id, rec, run, worker, ended, state, lease, successor, before or false }, j
end

-- The first running job of a group, or nil, and the position after which to look on if there are many runs.
local function running_of(group)
  local first
  local after = walk_runs(q, ARGV[6], function(id, run)
    if group_of_run(run) == group then first = id end
    return not first
  end)
  return first, not first and after
end

-- The job of a group that must end before this one, or nil: one that runs, waits for its next attempt, or is before it
-- in the lane. A position follows if the runs must be looked through further.
local function head_of(group, id)
  local head, after
  if call('HEXISTS', q.holds, group) == 1 then
    head, after = running_of(group)
    if after then return nil, after end
    if not head then
      local prefix = lane_prefix(group)
      local first = call('ZRANGEBYLEX', q.backoffs, '[' .. prefix, '(' .. prefix .. '\255', 'LIMIT', 0, 1)[1]
      head = first and sub(first, #prefix + 13)
    end
  end
  if not head then
    local first = lane_head(q, group, '1')[1]
    head = first and sub(first, id_at(group))
  end
  return head ~= id and head or nil
end

local job, j = look(ARGV[4])
local head, after
if job and job[6] == 'queued' and j.group then head, after = head_of(j.group, ARGV[4]) end
if after then return { 1, after } end
return { 0, now, call('HGET', q.meta, 'paused'), job, head and look(head) or false }
