-- What only newer software can run: out of the order, and back to its place when somebody comes who knows it.

-- name: park_jobs
-- Among the first jobs without a group, those that only newer software can run leave the order.
UPDATE jobs SET place = -1 WHERE n IN (
    SELECT n FROM (SELECT n, format FROM jobs WHERE queue = ? AND place = 1 ORDER BY rank, time, seq LIMIT ?)
    WHERE format > ?
)

-- name: park_lane
-- A group whose head only newer software can run keeps its turn, but nobody is served.
UPDATE lanes SET parked = ? WHERE queue = ? AND grp = ?

-- name: park_lowest
-- The lowest format among what is parked.
SELECT min(coalesce((SELECT format FROM jobs WHERE queue = ?1 AND place = -1 ORDER BY format LIMIT 1), 1 << 60),
           coalesce((SELECT parked FROM lanes WHERE queue = ?1 AND parked IS NOT NULL ORDER BY parked LIMIT 1), 1 << 60))

-- name: unpark_jobs
-- What this software knows comes back to its place in the order.
UPDATE jobs SET place = 1 WHERE n IN (SELECT n FROM jobs WHERE queue = ? AND place = -1 AND format <= ? LIMIT ?)

-- name: unpark_lanes
-- The same, of groups.
UPDATE lanes SET parked = NULL WHERE queue = ?1
    AND grp IN (SELECT grp FROM lanes WHERE queue = ?1 AND parked IS NOT NULL AND parked <= ?2 LIMIT ?3)

-- name: find_parked
-- Queued jobs without a group that wait for newer software.
SELECT {job} FROM jobs WHERE queue = ? AND place = -1 AND (format, rank, time, seq) > (?, ?, ?, ?)
ORDER BY format, rank, time, seq LIMIT ?
