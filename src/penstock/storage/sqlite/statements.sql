-- The statements, named and grouped by the verb that uses them. `{job}` stands for the columns of a
-- whole record, `{list}` for a question mark per value, `{rows}` for rows of question marks,
-- `{numbered}` for rows that end in their index, from 0 on.

-- queues ------------------------------------------------------------------------------------------

-- name: queue_get
-- A queue by its name: the counts of scheduled and retrying jobs and of blocked ones; the names of the events that its
-- listeners want (* for all, NULL without a listener); and in bits whether it is limited, whether there are rows of
-- groups, idle workers, and callers that wait for the end of one of its jobs, whether its counts are no numbers, and
-- whether it has jobs of flows.
-- It has few columns with short names: `sqlite3` describes each of them in every call.
SELECT k, seq, time, finished, paused, parked, alarm, expiry, tick, n_later + n_retrying AS later, n_blocked,
    CASE WHEN EXISTS (SELECT 1 FROM listeners) THEN
        (SELECT group_concat(CASE names WHEN '' THEN '*' ELSE names END) FROM listeners
            WHERE namespace = ?1 AND (queue IS NULL OR queue = ?2)) END AS names,
    (limited IS NOT 0)
    + 2 * EXISTS (SELECT 1 FROM lanes WHERE queue = k)
    + 4 * EXISTS (SELECT 1 FROM idle WHERE namespace = ?1 AND queue = ?2)
    + 8 * EXISTS (SELECT 1 FROM waits WHERE namespace = ?1 AND queue = ?2)
    + 16 * ((
        min(n_later, n_ready, n_lane, n_running, n_blocked, n_completed, n_failed, n_cancelled, n_suspended, n_retrying, n_parked) >= 0
        AND max(n_later, n_ready, n_lane, n_running, n_blocked, n_completed, n_failed, n_cancelled, n_suspended, n_retrying, n_parked) < 1 << 60
        AND limited IN (0, 1)) IS NOT 1)
    + 32 * (flows IS NOT 0) AS bits
FROM queues WHERE namespace = ?1 AND name = ?2

-- name: queue_add
-- A new queue; it is limited if there is a limit for it, or for its family (the third value, or NULL).
INSERT INTO queues (namespace, name, limited) VALUES (?1, ?2,
    EXISTS (SELECT 1 FROM limits WHERE namespace = ?1 AND queue = ?2 AND kind <> 'family')
    OR EXISTS (SELECT 1 FROM limits WHERE namespace = ?1 AND queue = ?3 AND kind = 'family'))

-- name: queue_save
-- The numbers that a transaction may change in a queue's row.
UPDATE queues SET seq = ?, time = ?, finished = ?,
    n_later = n_later + ?, n_ready = n_ready + ?, n_lane = n_lane + ?, n_running = n_running + ?, n_blocked = n_blocked + ?,
    n_completed = n_completed + ?, n_failed = n_failed + ?, n_cancelled = n_cancelled + ?, n_suspended = n_suspended + ?,
    n_retrying = n_retrying + ?, n_parked = n_parked + ?, damaged = damaged + ?
WHERE k = ?

-- name: queue_marks
-- The rest of it, which changes seldom, and most of which is NULL: to bind that takes longer, see `Blob`.
UPDATE queues SET paused = ?, pause_until = ?, pause_by = ?, parked = ?, alarm = ?, expiry = ?, tick = ?, limited = ?, flows = ?
WHERE k = ?

-- name: queue_pause
-- When the pause of a queue ends by itself, and who paused it.
SELECT pause_until, pause_by FROM queues WHERE k = ?

-- name: queue_totals
-- Count transitions beside the ends of jobs; a number that cannot be read begins anew.
UPDATE queues SET t_failed = CAST(t_failed AS INTEGER) + ?, t_cancelled = CAST(t_cancelled AS INTEGER) + ?,
    t_retried = CAST(t_retried AS INTEGER) + ?, t_stalled = CAST(t_stalled AS INTEGER) + ?,
    t_timed_out = CAST(t_timed_out AS INTEGER) + ?
WHERE k = ?

-- name: queue_grow
-- The same if the transaction has only added plain jobs.
UPDATE queues SET seq = ?, time = ?, n_ready = n_ready + ? WHERE k = ?

-- name: queue_names
-- The queues that have a job or a schedule which is not expired, or a limit, or are paused, also in part.
SELECT name FROM queues AS q WHERE namespace = ?1 AND (
    (paused IS NOT NULL AND (pause_until IS NULL OR pause_until > ?2))
    OR EXISTS (SELECT 1 FROM lanes INDEXED BY lanes_paused WHERE queue = q.k AND paused IS NOT NULL AND (pause_until IS NULL OR pause_until > ?2))
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = 1)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = 2)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = 0)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = 3)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = -1)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place = 8)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = q.k AND place IN (5, 6, 7) AND expires > ?2)
    OR EXISTS (SELECT 1 FROM schedules WHERE queue = q.k AND (expires IS NULL OR expires > ?2))
) UNION SELECT queue FROM limits WHERE namespace = ?1 AND kind <> 'family' ORDER BY name

-- one record --------------------------------------------------------------------------------------

-- name: job_get
-- A job (twin 0) or its blocked successor (twin 1), whole.
SELECT {job} FROM jobs WHERE queue = ? AND id = ? AND twin = ?

-- name: job_save
-- All that a transition may change in a record.
UPDATE jobs SET twin = ?, place = ?, rank = ?, time = ?, seq = ?, due = ?, grp = ?, retried = ?, solo = ?, format = ?, attempts = ?, retries = ?,
    stalls = ?, timeouts = ?, start_by = ?, cost = ?, window_ms = ?, earliest = ?, settled = ?, flags = ?, token = ?,
    worker = ?, until = ?, begun = ?, cancel = ?, cancel_ttl = ?, expires = ?, number = ?, finished = ?, error_key = ?, progress = ?, error = ?, result = ?, headers = ?, bounds = ?, payload = ?
WHERE n = ?

-- name: job_drop
-- Delete a record.
DELETE FROM jobs WHERE n = ?

-- put ---------------------------------------------------------------------------------------------

-- name: put_known
-- Which of these ids are taken.
SELECT id FROM jobs WHERE queue = ? AND twin = 0 AND id IN ({list})

-- name: put_insert
-- New records; an empty text stands for NULL, see `Blob`.
INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, grp, start_by, cost, window_ms, earliest, format,
    headers, bounds, payload)
VALUES {rows (?, ?, ?, ?, ?, ?, ?, ?, ?, nullif(?, ''), ?, nullif(?, ''), nullif(?, ''), ?, ?, ?, ?)}

-- name: put_successor
-- The blocked successor of a running job, with the begin of that run.
INSERT INTO jobs (queue, id, twin, place, rank, time, seq, due, created, grp, start_by, cost, window_ms, flags,
    format, headers, bounds, payload, begun)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: fast_put
-- A plain job in a transaction of this one statement: see fast_put.py and fast_put.sql.
INSERT INTO plain (queue, id, payload, rank, created, format) VALUES (?, ?, ?, ?, ?, ?)

-- name: put_one
-- A new record of one plain job (see fast_path.py).
INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, format, headers, bounds, payload)
VALUES (?1, ?6, 1, ?8, ?2, ?5, ?3, ?3, ?4, x'', x'', ?7)

-- name: put_plain
-- The same for many jobs, with the same parameters before the rows.
INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, format, headers, bounds, payload)
SELECT ?1, column1, 1, column3, ?2, ?5 + column4, ?3, ?3, ?4, x'', x'', column2
FROM (VALUES {numbered}) WHERE column1 IS NOT NULL

-- groups ------------------------------------------------------------------------------------------

-- name: lane_wake
-- Groups enter the rotation; one that is held or already in it stays as it is.
INSERT OR IGNORE INTO lanes (queue, grp, turn_time, turn_seq) VALUES {rows}

-- name: lane_hold
-- Change the number of jobs that hold a group.
INSERT INTO lanes (queue, grp, holds) VALUES (?1, ?2, ?3)
ON CONFLICT (queue, grp) DO UPDATE SET holds = holds + ?3

-- name: lane_get
-- A group, if it is held or in the rotation.
SELECT holds, turn_time, parked FROM lanes WHERE queue = ? AND grp = ?

-- name: lane_work
-- Whether a group has a ready job.
SELECT 1 FROM jobs WHERE queue = ? AND grp = ? AND place = 2 LIMIT 1

-- name: lane_turn
-- A group enters the rotation, or leaves it while held (NULL).
INSERT INTO lanes (queue, grp, turn_time, turn_seq) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (queue, grp) DO UPDATE SET turn_time = ?3, turn_seq = ?4

-- name: lane_drop
-- Delete a group without ready jobs and holds.
DELETE FROM lanes WHERE queue = ? AND grp = ?

-- name: lanes_look
-- Groups, and whether each has a ready job.
SELECT grp, holds, turn_time, parked, EXISTS (SELECT 1 FROM jobs WHERE queue = lanes.queue AND grp = lanes.grp AND place = 2)
FROM lanes WHERE queue = ? AND grp IN ({list})

-- name: lanes_turn
-- Groups that are not held any more enter the rotation, last.
UPDATE lanes SET holds = 0, turn_time = ?, turn_seq = ? + column2 FROM (VALUES {numbered}) WHERE queue = ? AND grp = column1

-- name: lanes_drop
-- Delete groups without ready jobs and holds.
DELETE FROM lanes WHERE queue = ? AND grp IN ({list})

-- name: promote_due
-- Due jobs that were not promoted yet: scheduled (0) or retrying (1) ones by due time.
SELECT n, grp, due, seq FROM jobs WHERE queue = ? AND place = 0 AND retried = ? AND due <= ?
ORDER BY due, seq LIMIT ?

-- name: promote_enter
-- Promote jobs to the ready order (1) or to their group (2).
UPDATE jobs SET place = ?, retried = 0 WHERE n IN ({list})

-- name: promote_left
-- Whether there is a due job that was not promoted yet.
SELECT 1 FROM jobs WHERE queue = ?1 AND place = 0 AND retried IN (0, 1) AND due <= ?2 LIMIT 1

-- expire ------------------------------------------------------------------------------------------

-- name: expire_first
-- Whether the start-by time of a job has passed.
SELECT 1 FROM jobs WHERE queue = ? AND start_by <= ? LIMIT 1

-- name: expire_due
-- The jobs whose start-by time has passed.
SELECT {job} FROM jobs WHERE queue = ? AND start_by <= ? ORDER BY start_by, seq LIMIT ?

-- name: expire_next
-- The first start-by time of a queue; those that are no integers are not found.
SELECT min(start_by) FROM jobs WHERE queue = ? AND start_by <= 1 << 60

-- name: expire_queues
-- The queues that may have a job whose start-by time has passed.
SELECT name FROM queues WHERE namespace = ? AND expiry <= ?

-- claim -------------------------------------------------------------------------------------------

-- name: claim_ready
-- The first jobs without a group.
SELECT rank, time, seq, n, id, payload, grp, headers, bounds, created, due, attempts, retries, stalls, timeouts, solo,
    format, cost,
    ifnull(length(payload), 0) + ifnull(length(headers), 0) + ifnull(length(bounds), 0) + ifnull(length(error), 0)
FROM jobs WHERE queue = ? AND place = 1 ORDER BY rank, time, seq LIMIT ?

-- name: claim_plain
-- The first jobs without a group; the last columns are whether a job never ran and has a known format, and the bytes of
-- its record.
SELECT n, id, payload, rank, headers, bounds, created, due,
    attempts = 0 AND retries = 0 AND stalls = 0 AND timeouts = 0 AND solo = 0 AND format <= ?3,
    ifnull(length(payload), 0) + ifnull(length(headers), 0) + ifnull(length(bounds), 0) + ifnull(length(error), 0)
FROM jobs WHERE queue = ?1 AND place = 1 ORDER BY rank, time, seq LIMIT ?2

-- name: claim_turns
-- The first groups in the rotation.
SELECT turn_time, turn_seq, grp FROM lanes WHERE queue = ? AND turn_time IS NOT NULL AND parked IS NULL
ORDER BY turn_time, turn_seq LIMIT ?

-- name: claim_heads
-- The first groups in the rotation, each with its first job.
SELECT l.turn_time, l.turn_seq, l.grp, j.rank, j.time, j.seq, j.n, j.id, j.payload, j.grp, j.headers, j.bounds, j.created,
    j.due, j.attempts, j.retries, j.stalls, j.timeouts, j.solo, j.format, j.cost,
    ifnull(length(j.payload), 0) + ifnull(length(j.headers), 0) + ifnull(length(j.bounds), 0) + ifnull(length(j.error), 0)
FROM lanes AS l LEFT JOIN jobs AS j ON j.n =
    (SELECT n FROM jobs WHERE queue = l.queue AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1)
WHERE l.queue = ? AND l.turn_time IS NOT NULL AND l.parked IS NULL
ORDER BY l.turn_time, l.turn_seq LIMIT ?

-- name: claim_lane
-- The first jobs of a group.
SELECT rank, time, seq, n, id, payload, grp, headers, bounds, created, due, attempts, retries, stalls, timeouts, solo,
    format, cost,
    ifnull(length(payload), 0) + ifnull(length(headers), 0) + ifnull(length(bounds), 0) + ifnull(length(error), 0)
FROM jobs WHERE queue = ? AND grp = ? AND place = 2 ORDER BY time, seq LIMIT ?

-- name: claim_start
-- due → running: the same token, worker and lease for all jobs that one claim takes from a queue.
UPDATE jobs SET place = 3, attempts = attempts + 1, start_by = NULL, token = ?, worker = ?, until = ?, begun = ?,
    cancel = NULL, progress = NULL
WHERE n IN ({list})

-- name: claim_range
-- The same for rows with consecutive numbers.
UPDATE jobs SET place = 3, attempts = attempts + 1, start_by = NULL, token = ?, worker = ?, until = ?, begun = ?,
    cancel = NULL, progress = NULL
WHERE n BETWEEN ? AND ?

-- name: claim_lanes
-- The groups of the claimed jobs leave the rotation and are held.
UPDATE lanes SET holds = holds + ?, turn_time = NULL, turn_seq = NULL WHERE queue = ? AND grp = ?

-- name: claim_singles
-- The same, if one job of each was claimed.
UPDATE lanes SET holds = holds + 1, turn_time = NULL, turn_seq = NULL WHERE queue = ? AND grp IN ({list})

-- name: claim_next
-- When the next job of a queue falls due.
SELECT min(coalesce((SELECT due FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 0 ORDER BY due LIMIT 1), 1 << 60),
           coalesce((SELECT due FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 1 ORDER BY due LIMIT 1), 1 << 60))

-- settle ------------------------------------------------------------------------------------------

-- name: settle_known
-- The columns of running jobs that their completion needs.
SELECT id, twin, n, place, token, worker, grp, attempts FROM jobs WHERE queue = ? AND id IN ({list})

-- name: settle_complete
-- running → completed.
UPDATE jobs SET place = 5, expires = column1, number = column2, finished = column3, result = column4, error = NULL
FROM (VALUES {rows}) WHERE n = column5

-- name: settle_plain
-- The same without a read before it, for jobs without successor, group or earlier error.
UPDATE jobs SET place = 5, expires = ?, finished = ?, number = ? + column4, result = column3
FROM (VALUES {numbered})
WHERE queue = ? AND id = column1 AND twin = 0 AND place = 3 AND token = column2 AND grp IS NULL AND error IS NULL

-- name: settle_undo
-- Set the rows that `settle_plain` has completed back to running, if it missed one.
UPDATE jobs SET place = 3, expires = NULL, finished = NULL, number = NULL, result = NULL
WHERE queue = ? AND place = 5 AND expires = ? AND number > ?

-- name: settle_completed
-- What the events of the rows that `settle_plain` has completed need.
SELECT id, attempts, worker FROM jobs WHERE queue = ? AND place = 5 AND expires = ? AND number > ?

-- name: settle_drop
-- running → completed and not kept.
DELETE FROM jobs WHERE n IN ({list})

-- name: settle_gone
-- Store that a token has settled a job that is not kept.
INSERT OR REPLACE INTO gone (queue, id, token, place, expires) VALUES {rows}

-- name: settle_before
-- The state in which a token has left a job that was not kept.
SELECT place FROM gone WHERE queue = ? AND id = ? AND token = ? AND expires > ?

-- leases ------------------------------------------------------------------------------------------

-- name: renew_known
-- The columns of runs that their renewal needs.
SELECT id, token, n, cancel FROM jobs WHERE queue = ? AND twin = 0 AND place = 3 AND id IN ({list})

-- name: renew_lease
-- running → running with a longer lease.
UPDATE jobs SET until = ? WHERE n IN ({list})

-- name: report_progress
-- Store the progress of a run.
UPDATE jobs SET progress = ? WHERE queue = ? AND id = ? AND twin = 0 AND place = 3 AND token = ?

-- name: reap_late
-- The rows of runs with an expired lease.
SELECT n FROM jobs WHERE queue = ? AND place = 3 AND until <= ? ORDER BY until, time, seq LIMIT ?

-- reads -------------------------------------------------------------------------------------------

-- name: get_many
-- Jobs by id, without successors.
SELECT {job} FROM jobs WHERE queue = ? AND twin = 0 AND id IN ({list})

-- name: find_running
-- The rows of runs by their begin; the index has all that this needs.
SELECT begun, n FROM jobs WHERE queue = ? AND place = 3 AND (begun, n) > (?, ?) ORDER BY begun, n LIMIT ?

-- name: find_row
-- A record by its row.
SELECT {job} FROM jobs WHERE n = ?

-- name: find_ready
-- Queued jobs without a group, in the order they would run.
SELECT {job} FROM jobs WHERE queue = ? AND place = 1 AND (rank, time, seq) > (?, ?, ?) ORDER BY rank, time, seq LIMIT ?

-- name: find_lanes
-- Queued jobs with a group, group by group.
SELECT {job} FROM jobs WHERE queue = ? AND place = 2 AND (grp, time, seq) > (?, ?, ?) ORDER BY grp, time, seq LIMIT ?

-- name: find_later
-- Scheduled (0) or retrying (1) jobs by due time.
SELECT {job} FROM jobs WHERE queue = ? AND place = 0 AND retried = ? AND (due, seq) > (?, ?) ORDER BY due, seq LIMIT ?

-- name: find_suspended
-- Suspended jobs by their wake time.
SELECT {job} FROM jobs WHERE queue = ? AND place = 8 AND (until, seq) > (?, ?) ORDER BY until, seq LIMIT ?

-- name: find_blocked
-- Blocked successors by the begin of the runs that they wait for.
SELECT {job} FROM jobs WHERE queue = ? AND place = 4 AND (begun, n) > (?, ?) ORDER BY begun, n LIMIT ?

-- name: find_ended
-- Finished jobs in the order in which they expire.
SELECT {job} FROM jobs WHERE queue = ? AND place = ? AND expires IS NOT NULL AND (expires, number) > (?, ?)
ORDER BY expires, number LIMIT ?

-- name: waiting
-- The number of jobs that are queued, scheduled or retrying.
SELECT n_later + n_ready + n_lane + n_retrying + n_parked FROM queues WHERE k = ?

-- name: counts
-- The stored counts, and the numbers of rows to be counted otherwise by the clock: suspended jobs whose wake time has
-- come, scheduled and retrying jobs that are due, and finished ones that are expired.
SELECT n_later, n_ready, n_lane, n_running, n_blocked, n_completed, n_failed, n_cancelled, n_suspended, n_retrying,
    n_parked,
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 8 AND until <= ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 0 AND due <= ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 0 AND retried = 1 AND due <= ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 5 AND expires <= ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 6 AND expires <= ?2),
    (SELECT count(*) FROM jobs WHERE queue = ?1 AND place = 7 AND expires <= ?2)
FROM queues WHERE k = ?1
