-- Statements of flows: generations, dependencies, notices, journals, signals and the outbox.

-- name: generation_get
-- The part of a job in flows.
SELECT {generation} FROM generations WHERE job = ?

-- name: generations_of
-- The same of several jobs.
SELECT {generation} FROM generations WHERE job IN ({list})

-- name: generation_add
-- A new one.
INSERT INTO generations ({generation}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: generation_save
-- All that a transition may change in it.
UPDATE generations SET flags = ?, extended_at = ?, fresh = ?, needs = ?, total = ?, adopted = ?, closed = ?, opening = ?,
    waiting = ?, first = ?, count = ?, wait = ?, cancel_ttl = ?, ended = ?, n_open = ?, n_ended = ?
WHERE job = ?

-- name: queue_flows
-- Note that a queue has rows of flows, at once: a trigger reads it.
UPDATE queues SET flows = 1 WHERE k = ?

-- name: flow_row
-- The row of a job or its successor.
SELECT n FROM jobs WHERE queue = ? AND id = ? AND twin = ?

-- name: flow_suspended
-- Give a new suspended job its wake time: none.
UPDATE jobs SET until = 1 << 60 WHERE n = ?

-- name: dependency_add
-- A dependency, unless there is one of its number.
INSERT OR IGNORE INTO dependencies (job, number, queue, id) VALUES (?, ?, ?, ?)

-- name: dependency_get
-- A dependency.
SELECT number, queue, id, ended, mode, harm, closed, culprit, value FROM dependencies WHERE job = ? AND number = ?

-- name: dependency_close
-- Close a dependency.
UPDATE dependencies SET ended = ?, mode = ?, harm = ?, closed = ?, value = ? WHERE job = ? AND number = ?

-- name: dependency_open
-- Open a dependency again.
UPDATE dependencies SET ended = NULL, harm = NULL, value = NULL WHERE job = ? AND number = ?

-- name: dependency_culprit
-- Whether the failure behind a dependency is that of the job.
UPDATE dependencies SET culprit = ? WHERE job = ? AND number = ?

-- name: dependencies_culprits
-- The dependencies whose failures are that of the job.
SELECT number FROM dependencies WHERE job = ? AND culprit = 1 ORDER BY number

-- name: dependencies_open
-- How many dependencies of these numbers are open.
SELECT count(*) FROM dependencies WHERE job = ? AND ended IS NULL AND number >= ? AND number < ?

-- name: dependencies_open_names
-- The first open dependencies of these numbers.
SELECT queue, id FROM dependencies WHERE job = ? AND ended IS NULL AND number >= ? AND number < ? ORDER BY number LIMIT 3

-- name: dependencies_harm
-- The dependencies that harm a job, the first one first: those that make a plan fail before those that cancel it.
SELECT number, queue, id, ended, mode, harm, closed, culprit, value FROM dependencies
WHERE job = ? AND harm IS NOT NULL AND number < ? ORDER BY harm, closed

-- name: dependencies_forget
-- Forget the dependencies that runs have made.
DELETE FROM dependencies WHERE job = ? AND number >= ?

-- name: dependencies_read
-- Dependencies after a number.
SELECT number, queue, id, ended, value FROM dependencies WHERE job = ? AND number > ? ORDER BY number LIMIT ?

-- name: dependency_next_open
-- The next open dependency after a number.
SELECT number FROM dependencies WHERE job = ? AND ended IS NULL AND number > ? ORDER BY number LIMIT 1

-- name: dependency_next_revived
-- The next dependency after a number that a retry of the plan revives.
SELECT number FROM dependencies WHERE job = ? AND ended IN ('failed', 'cancelled', 'dropped') AND number > ?
ORDER BY number LIMIT 1

-- name: dependency_next_dropped
-- The next dependency after a number that was cancelled with the plan.
SELECT number FROM dependencies WHERE job = ? AND ended = 'dropped' AND number > ? ORDER BY number LIMIT 1

-- name: dependency_next_culprit
-- The next dependency after a number whose failure was that of the job.
SELECT number FROM dependencies WHERE job = ? AND culprit = 1 AND number > ? ORDER BY number LIMIT 1

-- name: notice_add
-- A notice; the same twice is one.
INSERT INTO notices (job, queue, id, generation, number, mode) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (job, queue, id, generation, number) DO UPDATE SET mode = excluded.mode

-- name: notices_of
-- The notices of a job.
SELECT queue, id, generation, number, mode FROM notices WHERE job = ? ORDER BY n

-- name: notices_move
-- Give the notices of a job to another one.
UPDATE OR REPLACE notices SET job = ?2 WHERE job = ?1

-- name: notices_drop
-- Delete the notices of a job.
DELETE FROM notices WHERE job = ?

-- name: notices_of_queue
-- The notices of the unfinished jobs of a queue.
SELECT j.id, s.queue, s.id, s.generation, s.number, s.mode FROM jobs AS j JOIN notices AS s ON s.job = j.n
WHERE j.queue = ? AND (j.place < 5 OR j.place = 8) ORDER BY j.id, j.twin, s.n

-- name: journal_get
-- A checkpoint by its name.
SELECT n, name, kind, value FROM journal WHERE job = ? AND name = ?

-- name: journal_add
-- A new checkpoint, or a new value of a cursor.
INSERT INTO journal (job, n, name, kind, value)
VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM journal WHERE job = ?1), ?2, ?3, ?4)
ON CONFLICT (job, name) DO UPDATE SET kind = excluded.kind, value = excluded.value RETURNING n

-- name: journal_read
-- Checkpoints after a number.
SELECT n, name, kind, value FROM journal WHERE job = ? AND n > ? ORDER BY n LIMIT ?

-- name: journal_forget
-- Forget the checkpoints of a job.
DELETE FROM journal WHERE job = ?

-- name: signal_next
-- The unread signals of a job, in their order.
SELECT n, name, value FROM signals WHERE job = ? ORDER BY n

-- name: signal_add
-- A further one.
INSERT INTO signals (job, n, name, value)
VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM signals WHERE job = ?1), ?2, ?3)

-- name: signal_count
-- How many there are.
SELECT count(*) FROM signals WHERE job = ?

-- name: signal_drop
-- A signal that was read.
DELETE FROM signals WHERE job = ? AND n = ?

-- name: forgive
-- A checkpoint sets the counts of failed runs back.
UPDATE jobs SET retries = 0, stalls = 0, timeouts = 0 WHERE n = ?

-- name: wake_due
-- Suspended jobs whose wake time has come.
SELECT {job} FROM jobs WHERE queue = ? AND place = 8 AND until <= ? ORDER BY until, seq LIMIT ?

-- name: wake_left
-- Whether there is one.
SELECT 1 FROM jobs WHERE queue = ? AND place = 8 AND until <= ? LIMIT 1

-- name: wake_next
-- The next wake time of a queue.
SELECT min(until) FROM jobs WHERE queue = ? AND place = 8

-- name: claim_cancelled
-- Request the cancellation of a run at its beginning.
UPDATE jobs SET cancel = 'signal', cancel_ttl = ? WHERE n = ?

-- name: outbox_add
-- A message.
INSERT INTO outbox (namespace, family, at, message) VALUES (?, ?, ?, ?)

-- name: outbox_first
-- The first message of a family.
SELECT n, message FROM outbox WHERE namespace = ? AND family = ? ORDER BY n LIMIT 1

-- name: outbox_change
-- The rest of a message.
UPDATE outbox SET message = ? WHERE n = ?

-- name: outbox_drop
-- A message that was applied.
DELETE FROM outbox WHERE n = ?

-- name: abandoned
-- Jobs that are extended no more: queue, id.
SELECT q.name, j.id FROM generations AS g JOIN jobs AS j ON j.n = g.job JOIN queues AS q ON q.k = j.queue
WHERE g.extended_at <= ? AND q.namespace = ? AND j.place = 8 ORDER BY g.extended_at, q.name, j.id LIMIT ?
