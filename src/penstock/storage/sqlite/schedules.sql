-- Statements for schedules. `{schedule}` stands for the columns of a record, in the order of `ScheduleRow`.

-- name: schedule_get
-- A schedule by its name.
SELECT {schedule} FROM schedules WHERE queue = ? AND name = ?

-- name: schedule_save
-- A new schedule, or all that may change in one.
INSERT INTO schedules (queue, name, version, cursor, next, last_id, last_at, fired, skipped, missed, dropped, expires, spec)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (queue, name) DO UPDATE SET version = excluded.version, cursor = excluded.cursor, next = excluded.next,
    last_id = excluded.last_id, last_at = excluded.last_at, fired = excluded.fired, skipped = excluded.skipped,
    missed = excluded.missed, dropped = excluded.dropped, expires = excluded.expires, spec = excluded.spec

-- name: schedule_drop
-- Delete a schedule.
DELETE FROM schedules WHERE n = ?

-- name: schedule_aside
-- Set aside a schedule that cannot be read: it ticks no more, and purge deletes it later.
UPDATE schedules SET next = NULL, expires = ? WHERE n = ?

-- name: schedules_first
-- The earliest next tick of a queue.
SELECT min(next) FROM schedules WHERE queue = ? AND next < 1 << 60

-- name: schedules_due
-- The schedules whose next tick is due, the earliest first.
SELECT {schedule} FROM schedules WHERE queue = ?1 AND next <= ?2 AND (expires IS NULL OR expires > ?2)
ORDER BY next, name LIMIT ?3

-- name: schedules_page
-- The schedules of a queue by name, after one.
SELECT {schedule} FROM schedules WHERE queue = ?1 AND name > ?2 AND (expires IS NULL OR expires > ?3) ORDER BY name

-- name: schedules_any
-- Whether a queue has a schedule.
SELECT 1 FROM schedules WHERE queue = ? LIMIT 1

-- name: schedules_move
-- Give the schedules of a queue to another one.
UPDATE schedules SET queue = ? WHERE queue = ?

-- name: ticker_get
-- The worker that holds the alarm of a queue's schedules.
SELECT ticker FROM queues WHERE k = ?

-- name: ticker_set
-- Give the alarm of a queue's schedules to a worker, or to none (NULL).
UPDATE queues SET ticker = ? WHERE k = ?

-- name: lane_count
-- The number of ready jobs of a group, counted up to a number.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ? AND grp = ? AND place = 2 LIMIT ?)

-- name: purge_schedules
-- Delete expired schedules.
DELETE FROM schedules WHERE n IN (SELECT n FROM schedules WHERE queue = ? AND expires <= ? LIMIT ?)

-- name: delete_schedules
-- Delete the schedules of a deleted queue.
DELETE FROM schedules WHERE queue = ?

-- name: stray_schedules
-- Schedules that neither a tick nor purge would find: their next tick or expiry is not a number.
SELECT n FROM schedules WHERE queue = ?1 AND (next >= 1 << 60 OR expires >= 1 << 60) LIMIT ?2
