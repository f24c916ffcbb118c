-- Statements for operators, and for jobs that are restored from another storage.

-- name: meter
-- The numbers of jobs of a queue that have ended since it was created, of claims with an expired lease, and of damaged
-- records, and the next tick of its schedules.
SELECT CAST(finished AS INTEGER), (SELECT count(DISTINCT token) FROM jobs WHERE queue = k AND place = 3 AND until <= ?1),
    CAST(damaged AS INTEGER), CASE WHEN typeof(tick) = 'integer' THEN tick END
FROM queues WHERE namespace = ?2 AND name = ?3

-- name: latest
-- Finished jobs, those that are kept longest first.
SELECT {job} FROM jobs WHERE queue = ? AND place = ? AND expires > ? ORDER BY expires DESC, number DESC LIMIT ?

-- name: namespaces
-- The namespaces that have queues: one step of the index for each of them.
WITH RECURSIVE found (namespace) AS (
    SELECT min(namespace) FROM queues
    UNION ALL
    SELECT (SELECT min(queues.namespace) FROM queues WHERE queues.namespace > found.namespace) FROM found
    WHERE found.namespace IS NOT NULL
)
SELECT namespace FROM found WHERE namespace IS NOT NULL LIMIT ?

-- name: forget_workers
-- Delete the heartbeats of a namespace.
DELETE FROM workers WHERE namespace = ?

-- name: forget_events
-- Delete the events of a namespace.
DELETE FROM events WHERE namespace = ?

-- restore -----------------------------------------------------------------------------------------

-- name: restore_insert
-- A record with the values it had in another storage.
INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, grp, retried, format, attempts, retries, stalls,
    timeouts, start_by, cost, window_ms, token, worker, expires, number, finished, result, error, begun, error_key, headers, bounds, payload)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
