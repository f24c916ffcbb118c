-- report: attach progress, log lines and parts to runs
-- flags: allow-oom
-- keys: jobs runs blocked log stream meta waits generations
-- args: reports (msgpack: a list of {id, token, number of the progress + 1 (0: none), first, lines {{age, number}, ...},
--       first part, parts {number, ...}, checkpoints {{name, kind, number, signals}, ...} or absent}), then the bytes
-- gives: a list, which may end early (send the rest again), of 1, or 0 when the claim is lost; or of a list of the stored
--        checkpoints {number, kind, value}, 0 for a signal that has not come
-- include: shared
local q = queue_at(ARGV[2], ARGV[3])
local gives = {}
local function bytes(number) return number > 0 and ARGV[4 + number] or '' end

local function add_checkpoints(id, run, news)
  local j, stored = parse(spend(call('HGET', q.jobs, id))), {}
  if not j then return 0 end
  local g = flows().ensure(q, id, j, run)
  for i, new in ipairs(news) do
    local n, kind, value = flows().checkpoint(q, j, g, { new[1], new[2], bytes(new[3]), new[4] })
    stored[i] = n and { n, kind, value } or 0
  end
  call('HSET', q.jobs, id, spend(note_length(q, build(j))))
  flows().save(q, id, g)
  return stored
end

local function report_one(r)
  local id, token = r[1], r[2]
  local held = call('HGET', q.runs, id)
  if not held or sub(held, 1, 16) ~= token then return 0 end
  if r[3] > 0 then
    local run = run_of(q, id, held)
    run.progress = bytes(r[3] - 1)
    held = build_run(run)
    call('HSET', q.runs, id, spend(held))
  end
  if #r[5] > 0 or #r[7] > 0 then
    local j = parse(spend(call('HGET', q.jobs, id)))
    local attempt = j and j.attempts + 1 or 0
    for _, line in ipairs(r[5]) do line[2] = bytes(line[2]) end
    for i, part in ipairs(r[7]) do r[7][i] = bytes(part) end
    local added = #r[5] > 0 and histories().add_lines(q, id, token, attempt, r[4], r[5])
    if #r[7] > 0 and histories().add_parts(q, id, token, attempt, r[6], r[7]) then added = true end
    if added then notify_waiters(q, id .. READER) end
  end
  if r[8] then return add_checkpoints(id, run_of(q, id, held), r[8]) end
  return 1
end

for i, r in ipairs(cmsgpack.unpack(ARGV[4])) do
  gives[i] = report_one(r)
  if budget <= 0 then break end
end
return gives
