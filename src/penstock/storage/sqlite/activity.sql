-- Statements of the records about operators.

-- name: activity_add
-- Add an entry.
INSERT INTO activity (namespace, at, entry) VALUES (?, ?, ?)

-- name: activity_trim
-- Delete old entries, and those beyond the newest ones.
DELETE FROM activity WHERE namespace = ?1 AND (at <= ?2
    OR n <= coalesce((SELECT n FROM activity WHERE namespace = ?1 ORDER BY n DESC LIMIT 1 OFFSET ?3), 0))

-- name: activity_read
-- Entries before a number, newest first.
SELECT n, at, entry FROM activity WHERE namespace = ? AND n < ? AND at > ? ORDER BY n DESC LIMIT ?

-- name: activity_purge
-- Delete old entries of all namespaces.
DELETE FROM activity WHERE n IN (SELECT n FROM activity WHERE at <= ? ORDER BY n LIMIT ?)

-- name: activity_forget
-- Delete all entries of a namespace.
DELETE FROM activity WHERE namespace = ?

-- name: bulk_get
-- A bulk action.
SELECT id, version, changed, record FROM bulk_actions WHERE namespace = ? AND id = ? AND changed > ?

-- name: bulk_put
-- Store a bulk action.
INSERT OR REPLACE INTO bulk_actions (namespace, id, version, changed, record) VALUES (?, ?, ?, ?, ?)

-- name: bulk_trim
-- Delete old bulk actions, and those beyond the ones changed last.
DELETE FROM bulk_actions WHERE namespace = ?1 AND (changed <= ?2 OR id IN (
    SELECT id FROM bulk_actions WHERE namespace = ?1 ORDER BY changed DESC, id LIMIT -1 OFFSET ?3))

-- name: bulk_all
-- The bulk actions of a namespace.
SELECT id, version, changed, record FROM bulk_actions WHERE namespace = ? AND changed > ? ORDER BY changed DESC, id

-- name: bulk_purge
-- Delete old bulk actions of all namespaces.
DELETE FROM bulk_actions WHERE changed <= ?

-- name: bulk_forget
-- Delete all bulk actions of a namespace.
DELETE FROM bulk_actions WHERE namespace = ?

-- name: release_add
-- Add a release, unless there is one of its name.
INSERT OR IGNORE INTO releases (namespace, name, at) VALUES (?, ?, ?)

-- name: releases_trim
-- Delete the releases beyond the newest ones.
DELETE FROM releases WHERE namespace = ?1 AND name IN (
    SELECT name FROM releases WHERE namespace = ?1 ORDER BY at DESC, name DESC LIMIT -1 OFFSET ?2)

-- name: releases_all
-- The releases of a namespace, newest first.
SELECT name, at FROM releases WHERE namespace = ? ORDER BY at DESC, name DESC LIMIT ?

-- name: releases_forget
-- Delete all releases of a namespace.
DELETE FROM releases WHERE namespace = ?

-- name: worker_ask
-- Ask a live worker for something.
UPDATE workers SET request = ?, request_until = ? WHERE namespace = ? AND id = ? AND until > ?
