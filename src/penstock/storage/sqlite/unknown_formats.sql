-- Jobs of a format that only newer software can run: parked, and returned to their position by software that knows it.

-- name: park_jobs
-- Park the jobs of an unknown format among the first ones without a group.
UPDATE jobs SET place = -1 WHERE n IN (
    SELECT n FROM (SELECT n, format FROM jobs WHERE queue = ? AND place = 1 ORDER BY rank, time, seq LIMIT ?)
    WHERE format > ?
)

-- name: park_lane
-- Park a group whose first job has an unknown format: it keeps its turn, but is not claimed from.
UPDATE lanes SET parked = ? WHERE queue = ? AND grp = ?

-- name: park_lowest
-- The lowest format among the parked jobs and groups.
SELECT min(coalesce((SELECT format FROM jobs WHERE queue = ?1 AND place = -1 ORDER BY format LIMIT 1), 1 << 60),
           coalesce((SELECT parked FROM lanes WHERE queue = ?1 AND parked IS NOT NULL ORDER BY parked LIMIT 1), 1 << 60))

-- name: unpark_jobs
-- Return jobs of known formats to their position in the order.
UPDATE jobs SET place = 1 WHERE n IN (SELECT n FROM jobs WHERE queue = ? AND place = -1 AND format <= ? LIMIT ?)

-- name: unpark_lanes
-- The same for groups.
UPDATE lanes SET parked = NULL WHERE queue = ?1
    AND grp IN (SELECT grp FROM lanes WHERE queue = ?1 AND parked IS NOT NULL AND parked <= ?2 LIMIT ?3)

-- name: find_parked
-- Parked jobs without a group.
SELECT {job} FROM jobs WHERE queue = ? AND place = -1 AND (format, rank, time, seq) > (?, ?, ?, ?)
ORDER BY format, rank, time, seq LIMIT ?
