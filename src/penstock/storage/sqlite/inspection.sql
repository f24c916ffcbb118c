-- Statements for whoever looks after the file, and for jobs that come from another storage.

-- name: meter
-- How many jobs of a queue have ended since it was made, and how many leases are over.
SELECT finished, (SELECT count(DISTINCT token) FROM jobs WHERE queue = k AND place = 3 AND until <= ?1)
FROM queues WHERE namespace = ?2 AND name = ?3

-- name: latest
-- Ended jobs, those that are kept longest first.
SELECT {job} FROM jobs WHERE queue = ? AND place = ? AND expires > ? ORDER BY expires DESC, number DESC LIMIT ?

-- name: forget_workers
-- The workers' words of a namespace go.
DELETE FROM workers WHERE namespace = ?

-- name: forget_events
-- The feed of a namespace goes.
DELETE FROM events WHERE namespace = ?

-- restore -----------------------------------------------------------------------------------------

-- name: restore_insert
-- A record as another storage knew it.
INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, grp, retried, format, attempts, retries, stalls,
    timeouts, token, worker, expires, number, finished, result, error, headers, limits, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
