-- Statements for the position of a job and the jobs before it.

-- name: why_running
-- The first of the running jobs of a group.
SELECT {job} FROM jobs WHERE queue = ? AND place = 3 AND grp = ? ORDER BY time, seq LIMIT 1

-- name: why_backoff
-- The first of the jobs of a group that are in backoff.
SELECT {job} FROM jobs WHERE queue = ? AND grp = ? AND place IN (0, 8) AND retried = 1 ORDER BY due, seq LIMIT 1

-- name: why_lane
-- The first ready job of a group.
SELECT {job} FROM jobs WHERE queue = ? AND grp = ? AND place = 2 ORDER BY time, seq LIMIT 1

-- name: why_turn
-- The turn of a group that is in the rotation.
SELECT turn_time, turn_seq FROM lanes WHERE queue = ? AND grp = ? AND turn_time IS NOT NULL AND parked IS NULL

-- name: why_jobs
-- The number of jobs without a group before a position in the order, up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM jobs WHERE queue = ? AND place = 1 AND (rank, time, seq) < (?, ?, ?) LIMIT ?
)

-- name: why_turns
-- The number of groups before a position in the rotation, up to a limit.
SELECT count(*) FROM (
    SELECT 1 FROM lanes
    WHERE queue = ? AND turn_time IS NOT NULL AND parked IS NULL AND (turn_time, turn_seq) < (?, ?) LIMIT ?
)
