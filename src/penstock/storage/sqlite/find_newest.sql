-- The statements of find in the opposite order.

-- name: find_running_newest
-- The rows of runs, the one that began last first.
SELECT begun, n FROM jobs WHERE queue = ? AND place = 3 AND (begun, n) < (?, ?) ORDER BY begun DESC, n DESC LIMIT ?

-- name: find_ready_newest
-- Queued jobs without a group, the one that would run last first.
SELECT {job} FROM jobs WHERE queue = ? AND place = 1 AND (rank, time, seq) < (?, ?, ?)
ORDER BY rank DESC, time DESC, seq DESC LIMIT ?

-- name: find_lanes_newest
-- Queued jobs with a group, the last group first.
SELECT {job} FROM jobs WHERE queue = ? AND place = 2 AND (grp, time, seq) < (?, ?, ?)
ORDER BY grp DESC, time DESC, seq DESC LIMIT ?

-- name: find_parked_newest
-- Jobs that only newer software can run.
SELECT {job} FROM jobs WHERE queue = ? AND place = -1 AND (format, rank, time, seq) < (?, ?, ?, ?)
ORDER BY format DESC, rank DESC, time DESC, seq DESC LIMIT ?

-- name: find_later_newest
-- Scheduled (0) or retrying (1) jobs that are due after a time, the latest first.
SELECT {job} FROM jobs WHERE queue = ? AND place = 0 AND retried = ? AND due > ? AND (due, seq) < (?, ?)
ORDER BY due DESC, seq DESC LIMIT ?

-- name: find_suspended_newest
-- Suspended jobs, the one that wakes last first.
SELECT {job} FROM jobs WHERE queue = ? AND place = 8 AND (until, seq) < (?, ?) ORDER BY until DESC, seq DESC LIMIT ?

-- name: find_blocked_newest
-- Blocked successors, that of the run that began last first.
SELECT {job} FROM jobs WHERE queue = ? AND place = 4 AND (begun, n) < (?, ?) ORDER BY begun DESC, n DESC LIMIT ?

-- name: find_ended_newest
-- Finished jobs that expire after a time, the one that expires last first.
SELECT {job} FROM jobs WHERE queue = ? AND place = ? AND expires > ? AND (expires, number) < (?, ?)
ORDER BY expires DESC, number DESC LIMIT ?
