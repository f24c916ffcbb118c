-- Statements for windows: ids that are taken for a time from the acceptance of their jobs.

-- name: window_get
-- When the window of an id ends, if it is open.
SELECT until FROM windows WHERE queue = ?1 AND id = ?2 AND until > ?3 AND until <= 1 << 60

-- name: window_set
-- Take an id until this time.
INSERT OR REPLACE INTO windows (queue, id, until) VALUES (?, ?, ?)

-- name: window_drop
-- Free an id.
DELETE FROM windows WHERE queue = ? AND id = ?

-- name: purge_windows
-- Delete windows that have ended.
DELETE FROM windows WHERE queue = ?1 AND id IN (SELECT id FROM windows WHERE queue = ?1 AND (until <= ?2 OR until > 1 << 60) LIMIT ?3)

-- name: delete_windows
-- Delete the windows of a deleted queue.
DELETE FROM windows WHERE queue = ?
