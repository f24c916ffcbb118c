-- Statements that delete what is over: expired records, dead processes, queues.

-- name: purge_ended
-- Delete expired jobs of one state.
DELETE FROM jobs WHERE n IN (SELECT n FROM jobs WHERE queue = ? AND place = ? AND expires <= ? LIMIT ?)

-- name: purge_gone
-- Delete expired settlements of jobs that were not kept.
DELETE FROM gone WHERE queue = ?1 AND (id, token) IN (SELECT id, token FROM gone WHERE queue = ?1 AND (expires <= ?2 OR expires > 1 << 60) LIMIT ?3)

-- name: purge_unused
-- Whether a queue has no jobs, stored settlements, windows and schedules, is not paused, also in part, and its starts
-- are paid.
SELECT 1 FROM queues WHERE k = ?1 AND paused IS NULL AND NOT EXISTS (SELECT 1 FROM jobs WHERE queue = ?1)
    AND NOT EXISTS (SELECT 1 FROM gone WHERE queue = ?1) AND NOT EXISTS (SELECT 1 FROM windows WHERE queue = ?1)
    AND NOT EXISTS (SELECT 1 FROM schedules WHERE queue = ?1) AND tat IS NULL
    AND NOT EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND tat IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM lanes WHERE queue = ?1 AND paused IS NOT NULL)

-- name: purge_workers
-- Delete workers whose heartbeat has expired.
DELETE FROM workers WHERE until <= ? OR until > 1 << 60

-- name: purge_idle
-- Delete expired idle workers: their process was killed.
DELETE FROM idle WHERE until <= ? OR until > 1 << 60

-- name: purge_waits
-- The same for callers that wait for the end of a job.
DELETE FROM waits WHERE until <= ? OR until > 1 << 60

-- name: purge_listeners
-- The same for listeners to events.
DELETE FROM listeners WHERE until <= ? OR until > 1 << 60

-- name: purge_events
-- Delete old events.
DELETE FROM events WHERE n IN (SELECT n FROM events WHERE at <= ? OR at > 1 << 60 ORDER BY n LIMIT ?)

-- name: deleted_queues
-- Deleted queues that still have rows.
SELECT k FROM deleted_queues LIMIT 10

-- name: add_deleted_queue
-- Remember a deleted queue that still has rows.
INSERT INTO deleted_queues (k) VALUES (?)

-- name: delete_jobs_of_deleted_queue
-- Delete some jobs of a deleted queue.
DELETE FROM jobs WHERE n IN (SELECT n FROM jobs WHERE queue = ? LIMIT ?)

-- name: forget_deleted_queue
-- Forget a deleted queue without rows.
DELETE FROM deleted_queues WHERE k = ?

-- name: delete_lanes
-- Delete the groups of a deleted queue.
DELETE FROM lanes WHERE queue = ?

-- name: delete_gone
-- Delete the stored settlements of a deleted queue.
DELETE FROM gone WHERE queue = ?

-- name: delete_queue
-- Delete a queue's row.
DELETE FROM queues WHERE k = ?

-- name: ttl_set
-- Change when a finished job expires.
UPDATE jobs SET expires = ? WHERE n = ?
