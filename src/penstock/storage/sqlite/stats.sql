-- Statements for statistics, samples and groups.

-- name: totals
-- The totals of a queue, expired leases and damaged records.
SELECT CAST(finished AS INTEGER), CAST(t_failed AS INTEGER), CAST(t_cancelled AS INTEGER), CAST(t_retried AS INTEGER),
    CAST(t_stalled AS INTEGER), CAST(t_timed_out AS INTEGER),
    (SELECT count(DISTINCT token) FROM jobs WHERE queue = ?1 AND place = 3 AND until <= ?2), CAST(damaged AS INTEGER)
FROM queues WHERE k = ?1

-- name: stats_next
-- The first job without a group: its place in the order, and when it was due.
SELECT rank, time, seq, due FROM jobs WHERE queue = ? AND place = 1 ORDER BY rank, time, seq LIMIT 1

-- name: stats_next_turn
-- The first group in the rotation: its turn, and when its first job was due.
SELECT turn_time, turn_seq,
    (SELECT due FROM jobs WHERE queue = l.queue AND grp = l.grp AND place = 2 ORDER BY time, seq LIMIT 1)
FROM lanes AS l WHERE queue = ? AND turn_time IS NOT NULL AND parked IS NULL ORDER BY turn_time, turn_seq LIMIT 1

-- name: stats_get
-- The statistics of a queue.
SELECT times, newest, looked, base, summed FROM stats WHERE namespace = ? AND queue = ?

-- name: stats_put
-- Replace the statistics of a queue.
INSERT OR REPLACE INTO stats (namespace, queue, changed, times, newest, looked, base, summed) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: stats_looked
-- Keep the time at which a queue was found unchanged.
UPDATE stats SET looked = ? WHERE namespace = ? AND queue = ?

-- name: stats_base
-- Keep the totals of a queue that is forgotten; this does not keep its statistics for longer.
UPDATE stats SET base = ? WHERE namespace = ? AND queue = ?

-- name: stats_minute
-- When the queues were last sampled.
SELECT CAST(changed AS INTEGER) FROM stats WHERE namespace = ? AND queue = ''

-- name: stats_queues
-- The queues to be sampled.
SELECT name FROM queues WHERE namespace = ? ORDER BY name

-- name: history_number
-- The number of the step whose sample is in a slot.
SELECT number FROM history WHERE namespace = ? AND queue = ? AND step = ? AND slot = ?

-- name: history_put
-- Store a sample.
INSERT OR REPLACE INTO history (namespace, queue, step, slot, number, sample) VALUES (?, ?, ?, ?, ?, ?)

-- name: history_get
-- The samples of one step.
SELECT sample FROM history WHERE namespace = ? AND queue = ? AND step = ? LIMIT ?

-- name: history_bytes
-- The bytes of the samples of a queue.
SELECT coalesce(sum(length(sample)), 0) FROM history WHERE namespace = ? AND queue = ?

-- name: history_drop
-- Delete the samples of a queue.
DELETE FROM history WHERE namespace = ? AND queue = ?

-- name: stats_drop
-- Delete the statistics of a queue.
DELETE FROM stats WHERE namespace = ? AND queue = ?

-- name: stats_old
-- Statistics that were not changed for long.
SELECT namespace, queue FROM stats WHERE changed <= ? OR changed > 1 << 60 LIMIT 100

-- name: stats_forget
-- Delete the statistics of a namespace.
DELETE FROM stats WHERE namespace = ?

-- name: history_forget
-- Delete the samples of a namespace.
DELETE FROM history WHERE namespace = ?

-- name: groups_waiting
-- The first group from this name on with a queued job, and the first with a job in backoff.
SELECT (SELECT grp FROM jobs WHERE queue = ?1 AND place = 2 AND grp >= ?2 ORDER BY grp LIMIT 1),
    (SELECT grp FROM jobs WHERE queue = ?1 AND retried = 1 AND grp IS NOT NULL AND grp >= ?2 AND place IN (0, 8) ORDER BY grp LIMIT 1)

-- name: groups_rotation
-- The groups after a turn, by their turns.
SELECT grp, turn_time, turn_seq FROM lanes
WHERE queue = ? AND turn_time IS NOT NULL AND parked IS NULL AND (turn_time, turn_seq) > (?, ?)
    AND typeof(turn_time) = 'integer' AND typeof(turn_seq) = 'integer'
ORDER BY turn_time, turn_seq LIMIT ?

-- name: groups_backoff
-- The first job of a group in backoff.
SELECT id, due FROM jobs WHERE queue = ? AND grp = ? AND retried = 1 AND grp IS NOT NULL AND place IN (0, 8) ORDER BY due, seq LIMIT 1

-- name: groups_head
-- The first queued job of a group.
SELECT id, due, format FROM jobs WHERE queue = ? AND grp = ? AND place = 2 ORDER BY time, seq LIMIT 1

-- name: groups_count
-- The queued jobs of a group, counted up to a number.
SELECT count(*) FROM (SELECT 1 FROM jobs WHERE queue = ? AND grp = ? AND place = 2 LIMIT ?)
