-- Statements for limits, gates and pauses of groups.

-- limits ------------------------------------------------------------------------------------------

-- name: limit_get
-- A limit: version, rule and settings.
SELECT version, rule, settings FROM limits WHERE namespace = ? AND queue = ? AND kind = ? AND grp = ?

-- name: limit_any
-- Whether a queue has a limit, of its own or of its groups.
SELECT 1 FROM limits WHERE namespace = ? AND queue = ? AND kind <> 'family' LIMIT 1

-- name: limit_set
-- Set a limit.
INSERT OR REPLACE INTO limits (namespace, queue, kind, grp, version, rule, settings) VALUES (?, ?, ?, ?, ?, ?, ?)

-- name: limit_drop
-- Delete a limit.
DELETE FROM limits WHERE namespace = ? AND queue = ? AND kind = ? AND grp = ?

-- name: limits_drop
-- Delete the limits of a queue and its groups.
DELETE FROM limits WHERE namespace = ? AND queue = ? AND kind <> 'family'

-- name: outbox_forget
-- Delete the outbox of a namespace.
DELETE FROM outbox WHERE namespace = ?

-- name: limits_forget
-- Delete all limits of a namespace.
DELETE FROM limits WHERE namespace = ?

-- name: limits_has
-- Whether there is a limit with a rule for a queue, its groups or its family (the third value, or NULL).
SELECT 1 FROM limits WHERE namespace = ?1 AND rule IS NOT NULL AND (
    (queue = ?2 AND kind <> 'family') OR (queue = ?3 AND kind = 'family')) LIMIT 1

-- name: limits_own
-- Whether single groups of a queue have a limit.
SELECT 1 FROM limits WHERE namespace = ? AND queue = ? AND kind = 'group' LIMIT 1

-- name: limits_groups
-- The groups of a queue that have a limit or are paused, by their bytes.
SELECT grp FROM (
    SELECT grp FROM (
        SELECT grp FROM limits WHERE namespace = ?1 AND queue = ?2 AND kind = 'group' AND grp > ?5 ORDER BY grp LIMIT ?6
    )
    UNION
    SELECT grp FROM (
        SELECT grp FROM lanes WHERE queue = ?3 AND paused IS NOT NULL AND (pause_until IS NULL OR pause_until > ?4)
            AND grp > ?5 ORDER BY grp LIMIT ?6
    )
) ORDER BY grp LIMIT ?6

-- families ----------------------------------------------------------------------------------------

-- name: family_limited
-- Mark the queues of a family as limited; fail queues are not of it.
UPDATE queues SET limited = 1
WHERE namespace = ?1 AND (name = ?2 OR (name > ?2 || '/' AND name < ?2 || '0')) AND substr(name, -9) <> '/failures'

-- name: family_queues
-- The queues of a family: name, number and running jobs.
SELECT name, k, n_running FROM queues
WHERE namespace = ?1 AND (name = ?2 OR (name > ?2 || '/' AND name < ?2 || '0'))

-- name: family_idle
-- Queues of a family with jobs that idle workers wait for.
SELECT name FROM queues AS q
WHERE namespace = ?1 AND (name = ?2 OR (name > ?2 || '/' AND name < ?2 || '0')) AND n_ready + n_lane + n_later + n_retrying > 0
    AND EXISTS (SELECT 1 FROM idle WHERE namespace = ?1 AND queue = q.name) LIMIT ?3

-- name: family_gate
-- The state of the rate of a family.
SELECT tat, step, at FROM families WHERE namespace = ? AND name = ?

-- name: family_save
-- Store it.
INSERT OR REPLACE INTO families (namespace, name, tat, step, at) VALUES (?, ?, ?, ?, ?)

-- name: family_forget
-- Forget it: all starts are paid.
DELETE FROM families WHERE namespace = ? AND name = ?

-- name: families_forget
-- Delete those of a namespace.
DELETE FROM families WHERE namespace = ?

-- gates -------------------------------------------------------------------------------------------

-- name: gates_get
-- The state of the rate of a queue, and of the looks at its closed groups, and the number of its running jobs.
SELECT tat, step, at, epoch, changed, looked, n_running FROM queues WHERE k = ?

-- name: gates_save
-- Store it.
UPDATE queues SET tat = ?, step = ?, at = ?, epoch = ?, changed = ?, looked = ? WHERE k = ?

-- name: gates_stale
-- Closed groups that must be looked at again.
SELECT grp FROM lanes WHERE queue = ? AND opens IS NOT NULL AND epoch < ? LIMIT ?

-- name: gates_due
-- Closed groups whose time has come.
SELECT grp, opens FROM lanes WHERE queue = ? AND opens IS NOT NULL AND opens <= ? ORDER BY opens, grp LIMIT ?

-- name: gates_next
-- When the next closed group opens.
SELECT opens FROM lanes WHERE queue = ? AND opens IS NOT NULL ORDER BY opens LIMIT 1

-- name: gates_unpaid
-- Groups with a rate whose starts should be paid by now.
SELECT grp FROM lanes WHERE queue = ?1 AND tat IS NOT NULL AND (tat <= ?2 OR tat > 1 << 60) LIMIT ?3

-- name: gates_resumed
-- Groups whose pause is over.
SELECT grp FROM lanes WHERE queue = ? AND paused IS NOT NULL AND pause_until <= ? LIMIT ?

-- name: gates_closed
-- The number of groups with ready jobs that are not in the rotation.
SELECT count(*) FROM lanes WHERE queue = ?1 AND turn_time IS NULL
    AND EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND grp = lanes.grp AND place = 2)

-- name: gates_used
-- Whether a group of a queue needs the paths of limits: it is open though held, closed though not held, or has state.
SELECT 1 FROM lanes WHERE queue = ? AND (
    (turn_time IS NOT NULL AND holds <> 0) OR (opens IS NOT NULL AND holds = 0)
    OR tat IS NOT NULL OR paused IS NOT NULL OR stamp_time IS NOT NULL) LIMIT 1

-- name: gates_begin
-- Close the groups of a queue that becomes limited and are held, and count their backoffs.
UPDATE lanes SET epoch = ?2, backoffs = (SELECT count(*) FROM jobs WHERE queue = ?1 AND grp = lanes.grp AND retried = 1 AND place IN (0, 8)),
    opens = CASE WHEN EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND grp = lanes.grp AND place = 2) THEN 1 << 60 END
WHERE queue = ?1 AND turn_time IS NULL

-- name: gates_end
-- Forget the openings of the groups of a queue that is not limited any more: each is held.
UPDATE lanes SET opens = NULL, epoch = NULL, used = 0 WHERE queue = ? AND opens IS NOT NULL

-- lanes -------------------------------------------------------------------------------------------

-- name: lane_read
-- The row of a group, in the order of `gate_rows.LaneRow`.
SELECT holds, backoffs, turn_time, turn_seq, parked, tat, step, at, used, stamp_time, stamp_seq, opens, epoch, paused,
    pause_until, pause_by
FROM lanes WHERE queue = ? AND grp = ?

-- name: lanes_read
-- Groups with their rows, as `lane_read`, and the order and cost of the first ready job of each, as `lane_first`.
SELECT l.grp, l.holds, l.backoffs, l.turn_time, l.turn_seq, l.parked, l.tat, l.step, l.at, l.used, l.stamp_time,
    l.stamp_seq, l.opens, l.epoch, l.paused, l.pause_until, l.pause_by,
    j.time, j.seq, j.cost, j.format
FROM lanes AS l LEFT JOIN jobs AS j ON j.n =
    (SELECT n FROM jobs WHERE queue = l.queue AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1)
WHERE l.queue = ? AND l.grp IN ({list})

-- name: lanes_heads
-- The first groups in the rotation with their rows, as `lane_read`, the cost of the second ready job of each, and the
-- first one, as `claim_heads`.
SELECT l.turn_time, l.turn_seq, l.grp, l.holds, l.backoffs, l.turn_time, l.turn_seq, l.parked, l.tat, l.step, l.at, l.used, l.stamp_time,
    l.stamp_seq, l.opens, l.epoch, l.paused, l.pause_until, l.pause_by,
    (SELECT cost FROM jobs WHERE queue = l.queue AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1 OFFSET 1),
    j.rank, j.time, j.seq, j.n, j.id, j.payload, j.grp, j.headers, j.bounds, j.created,
    j.due, j.attempts, j.retries, j.stalls, j.timeouts, j.solo, j.format, j.cost,
    ifnull(length(j.payload), 0) + ifnull(length(j.headers), 0) + ifnull(length(j.bounds), 0) + ifnull(length(j.error), 0)
FROM lanes AS l LEFT JOIN jobs AS j ON j.n =
    (SELECT n FROM jobs WHERE queue = l.queue AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1)
WHERE l.queue = ? AND l.turn_time IS NOT NULL AND l.parked IS NULL
ORDER BY l.turn_time, l.turn_seq LIMIT ?

-- name: lane_write
-- Store it.
INSERT OR REPLACE INTO lanes (queue, grp, holds, backoffs, turn_time, turn_seq, parked, tat, step, at, used, stamp_time,
    stamp_seq, opens, epoch, paused, pause_until, pause_by)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: lanes_hold
-- Store only the holds of groups.
UPDATE lanes SET holds = column3 FROM (VALUES {rows}) WHERE queue = column1 AND grp = column2

-- name: lanes_move
-- Store only the holds and the turns of groups.
UPDATE lanes SET holds = column3, turn_time = column4, turn_seq = column5 FROM (VALUES {rows})
WHERE queue = column1 AND grp = column2

-- name: lane_backoff
-- Change the number of jobs of a group that are in backoff.
INSERT INTO lanes (queue, grp, backoffs) VALUES (?1, ?2, max(?3, 0))
ON CONFLICT (queue, grp) DO UPDATE SET backoffs = max(backoffs + ?3, 0)

-- name: lane_counts
-- The running jobs of a group, and those in backoff.
SELECT (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 3 AND grp = ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND grp = ?2 AND retried = 1 AND place IN (0, 8))

-- name: lane_first
-- The first ready job of a group after a position: its order, cost and format.
SELECT time, seq, cost, format FROM jobs WHERE queue = ? AND grp = ? AND place = 2 AND (time, seq) > (?, ?)
ORDER BY time, seq LIMIT 1

-- name: claim_lane_after
-- The first jobs of a group after a position, as `claim_lane`.
SELECT rank, time, seq, n, id, payload, grp, headers, bounds, created, due, attempts, retries, stalls, timeouts, solo,
    format, cost,
    ifnull(length(payload), 0) + ifnull(length(headers), 0) + ifnull(length(bounds), 0) + ifnull(length(error), 0)
FROM jobs WHERE queue = ? AND grp = ? AND place = 2 AND (time, seq) > (?, ?) ORDER BY time, seq LIMIT ?

-- name: lane_waiting
-- The number of ready jobs of a group, up to a limit.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ? AND grp = ? AND place = 2 LIMIT ?)

-- name: lane_running
-- The number of running jobs of a group.
SELECT count(*) FROM jobs WHERE queue = ? AND place = 3 AND grp = ?

-- name: holders
-- The runs of a queue that began first.
SELECT id, worker, begun FROM jobs WHERE queue = ? AND place = 3 ORDER BY begun, id LIMIT ?

-- name: lane_holders_named
-- The runs of a group that began first.
SELECT id, worker, begun FROM jobs WHERE queue = ? AND place = 3 AND grp = ? ORDER BY begun, id LIMIT ?
