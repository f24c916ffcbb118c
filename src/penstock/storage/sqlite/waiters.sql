-- Who is there, and who waits for what.

-- presence ----------------------------------------------------------------------------------------

-- name: beat
-- A worker is there.
INSERT OR REPLACE INTO workers (namespace, id, seen, until, info) VALUES (?, ?, ?, ?, ?)

-- name: beat_end
-- A worker leaves.
DELETE FROM workers WHERE namespace = ? AND id = ?

-- name: workers
-- The workers that are there.
SELECT id, seen, until, info FROM workers WHERE namespace = ? AND until > ? ORDER BY id

-- hints -------------------------------------------------------------------------------------------

-- name: work_ready
-- Whether a queue has something to hand out, or something whose time has come unseen.
SELECT 1 WHERE EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 1)
    OR EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND turn_time IS NOT NULL AND parked IS NULL)
    OR EXISTS (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 0 AND retried IN (0, 1) AND due <= ?2)

-- name: work_count
-- How many runs a queue could hand out now, up to a limit.
SELECT (SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ?1 AND place = 1 LIMIT ?2))
    + (SELECT count(*) FROM (SELECT 1 FROM lanes WHERE queue = ?1 AND turn_time IS NOT NULL AND parked IS NULL LIMIT ?2))

-- name: idle_add
-- A waiter has nothing to do.
INSERT OR REPLACE INTO idle (namespace, queue, since, waiter, path, until) VALUES (?, ?, ?, ?, ?, ?)

-- name: idle_pick
-- Who waited longest for a queue.
SELECT waiter, path FROM idle WHERE namespace = ? AND queue = ? ORDER BY since, waiter LIMIT ?

-- name: idle_drop
-- A waiter is woken, or leaves.
DELETE FROM idle WHERE waiter = ?

-- name: idle_has
-- Whether a waiter is still on the list.
SELECT 1 FROM idle WHERE waiter = ? LIMIT 1

-- name: idle_dead
-- The waiters of a process that is gone.
DELETE FROM idle WHERE path = ?

-- name: wait_add
-- Somebody waits for a job's end.
INSERT OR REPLACE INTO waits (namespace, queue, id, waiter, path, until) VALUES (?, ?, ?, ?, ?, ?)

-- name: wait_has
-- Whether anybody waits for the end of a job.
SELECT 1 FROM waits WHERE namespace = ? AND queue = ? AND id = ? AND until > ? LIMIT 1

-- name: wait_pick
-- Who waits for the end of a job.
DELETE FROM waits WHERE namespace = ? AND queue = ? AND id = ? RETURNING waiter, path

-- name: wait_among
-- For which of these jobs somebody waits.
SELECT DISTINCT id FROM waits WHERE namespace = ? AND queue = ? AND id IN ({list})

-- name: wait_pick_queue
-- Who waits for the end of any job of a queue.
DELETE FROM waits WHERE namespace = ? AND queue = ? RETURNING waiter, path

-- name: wait_drop
-- Somebody stops waiting for a job's end.
DELETE FROM waits WHERE waiter = ?

-- name: wait_state
-- Whether a job is still to end.
SELECT 1 FROM jobs WHERE queue = ? AND id = ? AND twin = 0 AND place < 5

-- name: wait_dead
-- The same, of a process that is gone.
DELETE FROM waits WHERE path = ?

-- name: listen
-- A listener is there until.
INSERT OR REPLACE INTO listeners (waiter, namespace, path, until) VALUES (?, ?, ?, ?)

-- name: listen_end
-- A listener leaves.
DELETE FROM listeners WHERE waiter = ?

-- name: listen_dead
-- The listeners of a process that is gone.
DELETE FROM listeners WHERE path = ?

-- name: listen_all
-- Who reads the feed.
SELECT waiter, path FROM listeners WHERE namespace = ? AND until > ?

-- name: event_add
-- A line of the feed.
INSERT INTO events (namespace, queue, at, note) VALUES (?, ?, ?, ?)

-- name: event_last
-- The number of the last line.
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)

-- name: event_trim
-- Only the newest lines are kept.
DELETE FROM events WHERE n <= ?

-- name: event_read
-- The lines after a number.
SELECT n, queue, note FROM events WHERE n > ? AND namespace = ? ORDER BY n LIMIT ?
