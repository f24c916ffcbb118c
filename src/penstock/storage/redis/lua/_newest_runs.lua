-- The runs of a queue in the opposite order of `walk_runs`: the ones that began last first.
local function walk_runs_back(q, after, visit)
  local rank, before = call('ZCOUNT', q.leases, '-inf', '(0') - 1, nil
  if #after >= 11 then
    local begun, index = unpack_head('>I6I4', after)
    local member = '!' .. sub(after, 11)
    local known = call('ZRANK', q.leases, member)
    if known then rank, before = known, index - 1 else rank = rank_after(q, begun, member) - 1 end
  end
  local left = MAX_IDS
  while rank >= 0 do
    local claim = call('ZRANGE', q.leases, rank, rank, 'WITHSCORES')
    if #claim == 0 then return nil end
    local token, begun = sub(claim[1], 2), tonumber(claim[2]) + LONG_AGO
    local ids, runs = runs_of(q, token)
    for i = math.min(before or #runs, #runs), 1, -1 do
      local position = pack('>I6I4', begun, i) .. token
      if runs[i] and not visit(ids[i], runs[i], position) then return position end
    end
    left, before, rank = left - #runs - 1, nil, rank - 1
    if left <= 0 then return pack('>I6I4', begun, 1) .. token end
  end
end
