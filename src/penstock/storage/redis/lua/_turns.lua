-- The turns of groups, and the entries of the order that they and jobs have: the part that the fast path of claim needs.

-- A turn is a group's member of ready, or of parked (which is a byte longer). The head of its lane is appended to the
-- former, so that a claim need not look for it; every other change of a lane removes it again.
local function member_of(turn, group) return sub(turn, 1, 17 + #group) end
local function is_turn(turn, group) return sub(turn, 17, 17 + #group) == 'g' .. group end
local function known_head(turn, group) return turn and #turn > 18 + #group and sub(turn, 18 + #group) or nil end

-- Whether an entry of the order has the time and the number of its job's record, which are before its position `at`. If
-- not, one of the two is damaged.
local function is_placed_by(entry, at, rec)
  return sub(entry, at - 12, at - 1) == (has(byte(rec, 2), SHORT) and sub(rec, 3, 14) or sub(rec, 7, 18))
end

-- Whether a member of ready, of a job without a group, is that of the record.
local function is_ranked_by(member, rec)
  if not is_placed_by(member, 17, rec) then return false end
  local priority = sub(member, 1, 4)
  if has(byte(rec, 2), SHORT) then return priority == PLAIN_RANK end
  return priority == pack('>I4', 2147483647 - unpack_head('>i4', rec, 3))
end

-- A new run of a job with a group, and one of a job of a limited queue, which may have none.
local function group_run(token, group) return token .. GROUP_RUN .. pack('>H', #group) .. group .. '\0' end
local function limited_run(token, group) return token .. LIMITED_RUN .. pack('>H', #group) .. group .. '\0' end
