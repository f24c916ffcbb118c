-- why: the position of a job, and of the job of its group that must end before it
-- flags: allow-oom
-- keys: jobs runs ends blocked ready scheduled retrying lanes turns holds parked backoffs expiring windows leases batches completed failed cancelled limits gates closed recheck idle_gates meta waits wake error_index error_order errors gone attempts log stream generations notices suspended successors
-- args: id, most, position of the run after which to look for that of its group
-- gives: {1, position} to ask again, or {0, now, paused since or false, job or false, head of its group or false}; a
--         job is {id, record, run or
--         false, worker or false, end or false, state if it waits or false, lease or false, 1 with a successor,
--         position in the order, at most `most`, or false, pause of its group or false, closed gate or false}; a pause is
--         {since, end, by whom}, a gate {scope, rule, 1 if its concurrency closes it, how many run, when it opens}
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
  return { id, rec, run, worker, ended, state, lease, successor, before or false, false, false,
    state == 'suspended' and flows().shown(q, id) or nil }, j
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
-- in the lane. In a group without order only the last holds it. A position follows if the runs must be looked through
-- further.
local function head_of(group, id)
  local head, after
  local ordered = limited_by(q) == 0 or gates().rule_of(q, group).ordered
  if ordered and call('HEXISTS', q.holds, group) == 1 then
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

-- A gate that is closed for a job, or nil.
local function closed(scope, rule, gate, running, cost)
  if rule.concurrency > 0 and running >= rule.concurrency then return { scope, rule.packed, 1, running, 0 } end
  local at = gates().rate_opens(gate, rule, cost)
  return at > now and { scope, rule.packed, 0, 0, at } or nil
end

-- Add what closes the way of a queued job, outside in. `first`: no job of its group must end before it.
local function add_gates(found, j, first)
  if limited_by(q) == 0 or not found then return end
  local G, g = gates(), j and j.group and gates().gate_of(q, j.group)
  local paused = g and g.since and g.ends > now
  if paused then found[10] = { g.since, g.ends, g.by } end
  if found[6] ~= 'queued' then return end
  local family, own, gate = G.family_limit(q), G.rules_of(q).queue, nil
  if family then gate = closed('family', family.rule, family.gate, family.running, j.cost) end
  if not gate and own then gate = closed('queue', own, G.gate_of(q, ''), call('HLEN', q.runs), j.cost) end
  if not gate and g and first and not paused then
    gate = closed('group', G.rule_of(q, j.group), g, (G.runs_of_group(q, j.group)), j.cost)
  end
  found[11] = gate or false
end

local first, f = false, nil
if head then
  first, f = look(head)
  add_gates(first, f or parse(first[2]), true)
end
add_gates(job, j or job and parse(job[2]), not head)
local since, ends, by = read_pause(call('HGET', q.meta, 'paused'))
return { 0, now, since and { since, ends, by } or false, job, first }
