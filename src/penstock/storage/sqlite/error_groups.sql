-- Statements for groups of failed jobs.

-- name: error_group_get
-- A group that was seen since a time.
SELECT first, count, type, message, kind FROM error_groups WHERE namespace = ? AND queue = ? AND key = ? AND last > ?

-- name: error_group_put
-- Store a group.
INSERT OR REPLACE INTO error_groups (namespace, queue, key, first, last, count, type, message, kind, sample_id)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: error_group_cap
-- Delete the groups of a queue that were seen longest ago, but for a number of others.
DELETE FROM error_groups WHERE namespace = ?1 AND queue = ?2 AND key IN (
    SELECT key FROM error_groups WHERE namespace = ?1 AND queue = ?2 ORDER BY last DESC, key DESC LIMIT -1 OFFSET ?3)

-- name: error_groups_all
-- The groups of a queue that were seen since a time.
SELECT key, type, message, kind, first, last, count, sample_id FROM error_groups
WHERE namespace = ? AND queue = ? AND last > ? AND last < 1 << 60 LIMIT ?

-- name: error_group_open
-- The failed jobs of a group.
SELECT count(*) FROM jobs WHERE queue = ? AND error_key = ? AND place = 6 AND error_key IS NOT NULL

-- name: error_group_jobs
-- The failed jobs of a group, the one that failed last first.
SELECT {job} FROM jobs WHERE queue = ? AND error_key = ? AND place = 6 AND error_key IS NOT NULL AND number < ?
ORDER BY number DESC LIMIT ?

-- name: error_groups_old
-- Delete groups that were not seen for long.
DELETE FROM error_groups WHERE last <= ? OR last > 1 << 60

-- name: error_groups_drop
-- Delete the groups of a queue.
DELETE FROM error_groups WHERE namespace = ? AND queue = ?

-- name: error_groups_forget
-- Delete the groups of a namespace.
DELETE FROM error_groups WHERE namespace = ?
