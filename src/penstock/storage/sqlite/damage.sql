-- Statements for damaged records: values that Penstock never writes. Text and blobs are greater than every integer, so
-- an index finds both with `> 1 << 60`, the largest integer that Penstock writes.

-- queues ------------------------------------------------------------------------------------------

-- name: queue_last
-- The last sequence number of a queue's jobs and turns, the last number of its ended jobs, and its first tick.
SELECT max(coalesce((SELECT max(seq) FROM jobs WHERE queue = ?1 AND seq < 1 << 60), 0),
           coalesce((SELECT max(turn_seq) FROM lanes WHERE queue = ?1 AND turn_seq < 1 << 60), 0)),
    coalesce((SELECT max(number) FROM jobs WHERE queue = ?1 AND number < 1 << 60), 0),
    (SELECT min(next) FROM schedules WHERE queue = ?1 AND next < 1 << 60)

-- name: queue_recount
-- Count the rows of a queue again.
UPDATE queues SET
    n_later = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 0),
    n_ready = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 1),
    n_lane = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 2),
    n_running = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 3),
    n_blocked = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 4),
    n_completed = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 5),
    n_failed = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 6),
    n_cancelled = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 7),
    n_suspended = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 8),
    n_retrying = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 0 AND retried <> 0),
    n_parked = (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = -1)
WHERE k = ?1

-- name: count_rows
-- The rows of a queue by place, retrying ones apart.
SELECT place, retried <> 0 AND place = 0, count(*) FROM jobs WHERE queue = ? GROUP BY 1, 2

-- name: sweep_counts
-- The stored counts of a queue, and whether it has a scheduled or retrying job, and a blocked one.
SELECT n_later, n_ready, n_lane, n_running, n_blocked, n_completed, n_failed, n_cancelled, n_suspended, n_retrying,
    n_parked,
    EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 0), EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 4)
FROM queues WHERE k = ?1

-- jobs --------------------------------------------------------------------------------------------

-- name: set_aside
-- Fail a record that cannot be read, and keep its other columns.
UPDATE jobs SET place = 6, twin = 0, retried = 0, start_by = NULL, token = '', worker = NULL, expires = ?, number = ?,
    finished = ?, error = ?, result = NULL, error_key = NULL, begun = NULL
WHERE n = ?

-- name: clear_start_by
-- Delete the start-by time of a job that has begun.
UPDATE jobs SET start_by = NULL WHERE n = ?

-- name: stray_later
-- Scheduled, retrying and parked jobs that no claim would find: their order is not a number.
SELECT {job} FROM jobs WHERE n IN (
    SELECT n FROM jobs WHERE queue = ?1 AND place = 0 AND retried < 0
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = 0 AND retried > 1
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = 0 AND retried > 0 AND retried < 1
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 0 AND due > 1 << 60
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 1 AND due > 1 << 60
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = -1 AND format > 1 << 60
    LIMIT ?2
)

-- name: stray_running
-- Give runs whose lease has no readable end a new one: a worker that is alive renews it.
UPDATE jobs SET until = ?2 WHERE n IN (
    SELECT n FROM jobs WHERE queue = ?1 AND place = 3 AND until IS NULL
    UNION ALL SELECT n FROM jobs WHERE queue = ?1 AND place = 3 AND until > 1 << 60
    LIMIT ?3
)

-- name: stray_ended
-- Give ended jobs whose expiry cannot be read a new one.
UPDATE jobs SET expires = ?3 WHERE n IN (SELECT n FROM jobs WHERE queue = ?1 AND place = ?2 AND expires > 1 << 60 LIMIT ?4)

-- groups ------------------------------------------------------------------------------------------

-- name: lane_holders
-- The number of jobs that hold a group: running, or in backoff.
SELECT (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 3 AND grp = ?2)
    + (SELECT count(*) FROM jobs WHERE queue = ?1 AND grp = ?2 AND retried = 1 AND place IN (0, 8))

-- name: lane_replace
-- The row of a group, with no turn.
INSERT OR REPLACE INTO lanes (queue, grp, holds) VALUES (?, ?, ?)

-- name: stray_lanes
-- Groups that are held by other jobs than those counted, or have neither a hold nor a turn.
WITH runs AS MATERIALIZED (
    SELECT grp, count(*) AS number FROM jobs WHERE queue = ?1 AND place = 3 AND grp IS NOT NULL GROUP BY grp
)
SELECT l.grp FROM lanes AS l LEFT JOIN runs ON runs.grp = l.grp
WHERE l.queue = ?1 AND (
    l.holds IS NOT coalesce(runs.number, 0)
        + (SELECT count(*) FROM jobs WHERE queue = ?1 AND grp = l.grp AND retried = 1 AND place IN (0, 8))
    OR (l.holds = 0 AND l.turn_time IS NULL AND l.opens IS NULL AND l.tat IS NULL AND l.paused IS NULL)
) LIMIT ?2

-- name: stray_groups
-- Groups that have ready jobs and no row: one step of the index for each group.
WITH RECURSIVE found (grp) AS (
    SELECT min(grp) FROM jobs WHERE queue = ?1 AND place = 2
    UNION ALL
    SELECT (SELECT min(jobs.grp) FROM jobs WHERE queue = ?1 AND place = 2 AND jobs.grp > found.grp) FROM found
    WHERE found.grp IS NOT NULL
)
SELECT grp FROM found WHERE grp IS NOT NULL AND NOT EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND lanes.grp = found.grp)
LIMIT ?2

-- name: stray_closed
-- Groups of a limited queue that nothing would open, or whose numbers Penstock never writes.
SELECT grp FROM lanes WHERE queue = ?1 AND (
    (opens >= 1 << 60 AND (opens > 1 << 60 OR (holds = 0 AND paused IS NULL AND epoch IS NOT -1)))
    OR typeof(opens) NOT IN ('integer', 'null') OR typeof(paused) NOT IN ('integer', 'null')
    OR typeof(pause_until) NOT IN ('integer', 'null')
    OR backoffs IS NOT (SELECT count(*) FROM jobs WHERE queue = ?1 AND grp = lanes.grp AND retried = 1 AND place IN (0, 8))
) LIMIT ?2

-- name: stray_parked
-- Parked groups whose first job has a known format.
SELECT grp FROM (SELECT grp FROM lanes WHERE queue = ?1 AND parked IS NOT NULL LIMIT ?3) AS l
WHERE (SELECT format FROM jobs WHERE queue = ?1 AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1) <= ?2

-- numbers -----------------------------------------------------------------------------------------

-- name: renumber_events
-- Delete events with numbers that Penstock never gives: after the largest there is no next, and SQLite answers FULL.
DELETE FROM events WHERE n >= 1 << 60

-- name: renumber_queues
-- Give a queue with such a number another one.
UPDATE queues SET k = 1 + max(coalesce((SELECT max(k) FROM queues WHERE k < 1 << 60), 0),
                              coalesce((SELECT max(queue) FROM jobs WHERE queue < 1 << 60), 0))
WHERE k = (SELECT max(k) FROM queues WHERE k >= 1 << 60)

-- name: renumber_next
-- Number the next event and the next queue after the last one.
UPDATE sqlite_sequence SET seq = CASE name WHEN 'events' THEN coalesce((SELECT max(n) FROM events), 0)
    ELSE coalesce((SELECT max(k) FROM queues), 0) END
WHERE name IN ('events', 'queues') AND seq >= 1 << 60
