-- why: the position of a job, and of the job of its group that must end before it
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring leases batches cancelled meta waits wake
-- args: id most
-- gives: {again, now, paused since or false, job or false, head of its group or false}; a job is {id, record, run or
--         false, worker or false, end or false, state if it waits or false, lease or false, 1 with a successor,
--         position in the order, at most `most`, or false}
-- include: shared expiry
local q = queue_at(ARGV[2], ARGV[3])
local most = tonumber(ARGV[5])
if unpark(q) or promote(q) or expire(q) then return { 1 } end

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

-- The running job of a group that was accepted first. There are no more runs than the workers hold, so all are read.
local function running_of(group)
  local first, seq = nil, nil
  for _, id in ipairs(call('HKEYS', q.runs)) do
    local run = call('HGET', q.runs, id)
    if group_of_run(run) == group then
      local j = parse(call('HGET', q.jobs, id)) or { seq = 0 }
      if not seq or j.seq < seq then first, seq = id, j.seq end
    end
  end
  return first
end

-- The job of a group that must end before this one, or nil: one that runs, waits for its next attempt, or is before it
-- in the lane.
local function head_of(group, id)
  local head
  if call('HEXISTS', q.holds, group) == 1 then
    head = running_of(group)
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
local head = job and job[6] == 'queued' and j.group and head_of(j.group, ARGV[4])
return { 0, now, call('HGET', q.meta, 'paused'), job, head and look(head) or false }
