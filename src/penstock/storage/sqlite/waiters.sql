-- Statements for the heartbeats of workers, for waiters and for events.

-- heartbeats --------------------------------------------------------------------------------------

-- name: beat
-- Store a heartbeat.
INSERT INTO workers (namespace, id, seen, until, info) VALUES (?1, ?2, ?3, ?4, ?5)
    ON CONFLICT (namespace, id) DO UPDATE SET seen = ?3, until = ?4, info = ?5,
        request = CASE WHEN until > ?3 THEN request END
    RETURNING request, request_until

-- name: beat_end
-- Delete a heartbeat.
DELETE FROM workers WHERE namespace = ? AND id = ?

-- name: workers
-- The workers whose heartbeat has not expired.
SELECT id, seen, until, info FROM workers WHERE namespace = ? AND until > ? ORDER BY id

-- waiters -----------------------------------------------------------------------------------------

-- name: work_ready
-- Whether a queue has a ready job or group, or a due job that was not promoted yet.
SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 1)
    OR EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND turn_time IS NOT NULL AND parked IS NULL)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 0 AND retried IN (0, 1) AND due <= ?2)

-- name: work_count
-- The number of jobs and groups that could be claimed now, up to a limit.
SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 1 LIMIT ?2))
    + (SELECT count(*) FROM (SELECT 1 FROM lanes WHERE queue = ?1 AND turn_time IS NOT NULL AND parked IS NULL LIMIT ?2))

-- name: idle_add
-- Add an idle worker.
INSERT OR REPLACE INTO idle (namespace, queue, since, waiter, address, until) VALUES (?, ?, ?, ?, ?, ?)

-- name: idle_pick
-- The workers that have been idle longest.
SELECT waiter, address FROM idle WHERE namespace = ? AND queue = ? ORDER BY since, waiter LIMIT ?

-- name: idle_drop
-- Delete an idle worker that is woken or stops waiting.
DELETE FROM idle WHERE waiter = ?

-- name: idle_has
-- Whether an idle worker was not woken yet.
SELECT 1 FROM idle WHERE waiter = ? LIMIT 1

-- name: idle_dead
-- Delete the idle workers of a process that is gone.
DELETE FROM idle WHERE address = ?

-- name: wait_add
-- Add a caller that waits for the end of a job.
INSERT OR REPLACE INTO waits (namespace, queue, id, waiter, address, until) VALUES (?, ?, ?, ?, ?, ?)

-- name: wait_has
-- Whether a caller waits for the end of a job.
SELECT 1 FROM waits WHERE namespace = ? AND queue = ? AND id = ? AND until > ? LIMIT 1

-- name: wait_pick
-- Delete and return the callers that wait for the end of a job.
DELETE FROM waits WHERE namespace = ? AND queue = ? AND id = ? RETURNING waiter, address

-- name: wait_among
-- Those of these jobs whose end a caller waits for.
SELECT DISTINCT id FROM waits WHERE namespace = ? AND queue = ? AND id IN ({list})

-- name: wait_pick_queue
-- Delete and return the callers that wait for the end of any job of a queue.
DELETE FROM waits WHERE namespace = ? AND queue = ? RETURNING waiter, address

-- name: wait_drop
-- Delete a caller that stops waiting.
DELETE FROM waits WHERE waiter = ?

-- name: wait_state
-- Whether a job has not ended yet.
SELECT 1 FROM jobs WHERE queue = ? AND id = ? AND twin = 0 AND (place < 5 OR place = 8)

-- name: wait_dead
-- Delete the waiting callers of a process that is gone.
DELETE FROM waits WHERE address = ?

-- name: listen
-- Add or renew a listener.
INSERT OR REPLACE INTO listeners (waiter, namespace, address, until, queue, names) VALUES (?, ?, ?, ?, ?, ?)

-- name: listen_end
-- Delete a listener.
DELETE FROM listeners WHERE waiter = ?

-- name: listen_dead
-- Delete the listeners of a process that is gone.
DELETE FROM listeners WHERE address = ?

-- name: listen_all
-- The listeners of a namespace.
SELECT waiter, address, queue, names FROM listeners WHERE namespace = ? AND until > ?

-- name: event_add
-- Store events about one queue, whose number is the first value. If their numbers are taken by rows of other software,
-- SQLite refuses the row, and the engine renumbers the events.
INSERT INTO events (n, namespace, queue, at, note)
SELECT CASE WHEN last < 1 << 60 THEN last + ?1 END, ?2, ?3, ?4, ?5
FROM (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) AS last)

-- name: event_last
-- The number of the last event.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)

-- name: event_trim
-- Delete the oldest events.
DELETE FROM events WHERE n <= ?

-- name: event_read
-- The events after a number; NULL for those of other queues than the one given, if one is.
SELECT n, CASE WHEN ?3 IS NULL OR queue = ?3 THEN note END FROM events WHERE n > ?1 AND namespace = ?2 ORDER BY n LIMIT ?4
