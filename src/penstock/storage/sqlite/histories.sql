-- Statements of the histories of jobs.

-- name: attempt_add
-- Add an entry to the attempts of a job; an error that equals the first one is stored once.
INSERT INTO histories (queue, id, kind, n, at, attempt, size, outcome, started, worker, data)
    SELECT ?1, ?2, 0, coalesce(max(n), 0) + 1, ?3, ?4, 0, ?5, ?6, ?7,
        CASE WHEN ?8 = (SELECT data FROM histories WHERE queue = ?1 AND id = ?2 AND kind = 0 AND n = 1) THEN NULL ELSE ?8 END
    FROM histories WHERE queue = ?1 AND id = ?2 AND kind = 0
    RETURNING n

-- name: attempts_trim
-- Delete the entries between the first and the last ones.
DELETE FROM histories WHERE queue = ? AND id = ? AND kind = 0 AND n > 1 AND n <= ?

-- name: report_run
-- The attempt of a run, if it goes on.
SELECT attempts FROM jobs WHERE queue = ? AND id = ? AND twin = 0 AND place = 3 AND token = ?

-- name: history_last
-- The last entry of a log or stream.
SELECT n, size, mark FROM histories WHERE queue = ? AND id = ? AND kind = ? ORDER BY n DESC LIMIT 1

-- name: history_add
-- Add an entry to a log or stream.
INSERT OR REPLACE INTO histories (queue, id, kind, n, at, attempt, size, mark, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: history_trim
-- Delete the oldest entries of a log or stream: up to a number, and up to a sum of bytes.
DELETE FROM histories WHERE queue = ? AND id = ? AND kind = ? AND (n <= ? OR size - length(data) < ?)

-- name: history_job
-- Whether there is a job, and when its TTL is over.
SELECT expires FROM jobs WHERE queue = ? AND id = ? AND twin = 0

-- name: history_read
-- Entries of a history after a number.
SELECT n, at, attempt, outcome, started, worker, data FROM histories
    WHERE queue = ? AND id = ? AND kind = ? AND n > ? ORDER BY n LIMIT ?

-- name: history_after
-- Whether a history has entries after a number.
SELECT 1 FROM histories WHERE queue = ? AND id = ? AND kind = ? AND n > ? LIMIT 1

-- name: history_first
-- The error of the first attempt.
SELECT data FROM histories WHERE queue = ? AND id = ? AND kind = 0 AND n = 1

-- name: histories_drop
-- Delete entries of a queue that is deleted.
DELETE FROM histories WHERE (queue, id, kind, n) IN (SELECT queue, id, kind, n FROM histories WHERE queue = ? LIMIT ?)
