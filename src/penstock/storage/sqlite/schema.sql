-- The tables of one Penstock file. Times are integer milliseconds on the storage's clock, except the
-- `until` of waiters and listeners, which is real time: it is about processes, not about jobs.

-- One row, `schema`: the version of these tables, which a program must know to open the file.
CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;

-- One row per queue that was ever put to or paused, until it is deleted.
CREATE TABLE queues (
    k INTEGER PRIMARY KEY AUTOINCREMENT, -- its number; never reused, so that rows of a deleted queue belong to no queue
    namespace TEXT NOT NULL,             -- the app it belongs to
    name TEXT NOT NULL,                  -- opaque, as the user gave it
    seq INTEGER NOT NULL DEFAULT 0,      -- the last sequence number given
    time INTEGER NOT NULL DEFAULT 0,     -- the latest acceptance time: order stamps never go back
    finished INTEGER NOT NULL DEFAULT 0, -- how many jobs have ended: numbers them
    paused INTEGER,                      -- since when it is paused, or NULL
    parked INTEGER,                      -- the lowest format among what waits for newer software, or NULL
    alarm INTEGER,                       -- when some worker has promised to look again, or NULL
    expiry INTEGER,                      -- the first start_by of its jobs, or an earlier time; NULL: none has one
    -- How many rows of jobs there are in each place; later ones for a further try apart.
    n_later INTEGER NOT NULL DEFAULT 0,
    n_ready INTEGER NOT NULL DEFAULT 0,
    n_lane INTEGER NOT NULL DEFAULT 0,
    n_running INTEGER NOT NULL DEFAULT 0,
    n_blocked INTEGER NOT NULL DEFAULT 0,
    n_completed INTEGER NOT NULL DEFAULT 0,
    n_failed INTEGER NOT NULL DEFAULT 0,
    n_cancelled INTEGER NOT NULL DEFAULT 0,
    n_retrying INTEGER NOT NULL DEFAULT 0,
    n_parked INTEGER NOT NULL DEFAULT 0,
    damaged INTEGER NOT NULL DEFAULT 0,  -- how many records were found that could not be read
    UNIQUE (namespace, name)
);

-- Numbers of deleted queues whose rows purge deletes in bounded steps.
CREATE TABLE doomed (k INTEGER PRIMARY KEY);

-- One row per job, and one more for the blocked successor of a running one.
CREATE TABLE jobs (
    n INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,              -- queues.k
    id TEXT NOT NULL,                    -- the job's id within its queue
    twin INTEGER NOT NULL DEFAULT 0,     -- 1: the blocked successor of the running job with this id
    place INTEGER NOT NULL,              -- -1 parked, 0 later, 1 ready, 2 in its lane, 3 running, 4 blocked, 5 completed, 6 failed, 7 cancelled
    rank INTEGER NOT NULL DEFAULT 0,     -- minus the priority, so that every order is ascending
    time INTEGER NOT NULL,               -- the order stamp: run-at or acceptance
    seq INTEGER NOT NULL,                -- the sequence number of its acceptance
    due INTEGER NOT NULL,                -- when it may run
    created INTEGER NOT NULL,            -- when it was accepted
    grp TEXT,                            -- its group, or NULL
    retried INTEGER NOT NULL DEFAULT 0,  -- 1: waits out a backoff, and holds its group meanwhile
    solo INTEGER NOT NULL DEFAULT 0,     -- 1: must not share a batch
    format INTEGER NOT NULL DEFAULT 1,   -- how its headers, limits and payload are to be read
    attempts INTEGER DEFAULT 0,          -- claims so far
    retries INTEGER DEFAULT 0,           -- failed runs so far
    stalls INTEGER DEFAULT 0,            -- lost runs so far
    timeouts INTEGER DEFAULT 0,          -- timed-out runs so far
    start_by INTEGER,                    -- when it expires, until its first run begins
    settled TEXT,                        -- the last outcome that sent it back: a letter and the token
    flags INTEGER,                       -- a blocked successor's update flags, as bits; of an ended job, 1: its id is free
    token TEXT,                          -- the fence of the run it is in, or that ended it
    worker TEXT,                         -- who runs it, or who ended it
    until INTEGER,                       -- the end of its lease
    begun INTEGER,                       -- when its last run began; of a blocked successor, the run it waits for
    cancel TEXT,                         -- the cancel mode asked for
    cancel_ttl INTEGER,                  -- how long to keep it if it ends by that
    expires INTEGER,                     -- when an ended job is forgotten (1 << 60: never); NULL before its end
    number INTEGER,                      -- position among the ended jobs of its queue
    finished INTEGER,                    -- when it ended
    progress BLOB,                       -- the last report of this run
    error BLOB,                          -- the last error, encoded
    result BLOB,                         -- what it gave, encoded
    headers BLOB,                        -- opaque
    limits BLOB,                         -- the job's own limits, opaque
    payload BLOB                         -- opaque; last, since it is the longest
);

-- `place` is the last column of the partial indexes so that counting does not read the table; it takes no room.
CREATE UNIQUE INDEX jobs_id ON jobs (queue, id, twin);
-- The order of jobs without a group.
CREATE INDEX jobs_ready ON jobs (queue, rank, time, seq, place) WHERE place = 1;
-- Jobs that only newer software can run, so that no claim reads them again.
CREATE INDEX jobs_parked ON jobs (queue, format, rank, time, seq, place) WHERE place = -1;
-- The order inside each group.
CREATE INDEX jobs_lane ON jobs (queue, grp, time, seq, place) WHERE place = 2;
-- Jobs that are not due yet, or not promoted yet; scheduled ones apart from retrying ones.
CREATE INDEX jobs_later ON jobs (queue, retried, due, seq, place) WHERE place = 0;
-- Jobs of a group in backoff, which hold it.
CREATE INDEX jobs_backoff ON jobs (queue, grp, due, seq, place) WHERE retried = 1 AND grp IS NOT NULL;
-- Runs by the end of their lease; with their begin, so that a listing need not read the table to sort them.
CREATE INDEX jobs_running ON jobs (queue, until, begun, place) WHERE place = 3;
-- Blocked successors by the begin of the runs that they wait for.
CREATE INDEX jobs_blocked ON jobs (queue, begun, place) WHERE place = 4;
-- Jobs that have not begun and must by a time.
CREATE INDEX jobs_start_by ON jobs (queue, start_by, seq) WHERE start_by IS NOT NULL;
-- Finished jobs in the order in which they expire.
CREATE INDEX jobs_ended ON jobs (queue, place, expires, number) WHERE expires IS NOT NULL;

-- Groups that are held or in the rotation; an idle group has no row.
CREATE TABLE lanes (
    queue INTEGER NOT NULL,              -- queues.k
    grp TEXT NOT NULL,                   -- the group
    holds INTEGER NOT NULL DEFAULT 0,    -- its running jobs and its heads in backoff
    turn_time INTEGER,                   -- its turn in the rotation, NULL while held
    turn_seq INTEGER,                    -- second part of the turn
    parked INTEGER,                      -- the format of its head, if only newer software can run that
    PRIMARY KEY (queue, grp)
) WITHOUT ROWID;
CREATE INDEX lanes_turn ON lanes (queue, turn_time, turn_seq) WHERE turn_time IS NOT NULL AND parked IS NULL;
CREATE INDEX lanes_parked ON lanes (queue, parked) WHERE parked IS NOT NULL;

-- Settlements of jobs that were not kept, so that a repeated one is answered as the first.
CREATE TABLE gone (
    queue INTEGER NOT NULL,              -- queues.k
    id TEXT NOT NULL,
    token TEXT NOT NULL,
    place INTEGER NOT NULL,              -- how it ended
    expires INTEGER NOT NULL,            -- when this memory ends
    PRIMARY KEY (queue, id, token)
) WITHOUT ROWID;
CREATE INDEX gone_expires ON gone (queue, expires);

-- The last heartbeat of each worker.
CREATE TABLE workers (
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    seen INTEGER NOT NULL,               -- the last beat
    until INTEGER NOT NULL,              -- when the word of it ends
    info BLOB NOT NULL,                  -- the heartbeat of the worker, opaque
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- Idle workers, one row per queue they wait for; deleted by the transaction that wakes them.
CREATE TABLE idle (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,                 -- the queue's name: it need not exist yet
    since INTEGER NOT NULL,              -- who came first is woken first
    waiter TEXT NOT NULL,                -- a random name
    address TEXT NOT NULL,               -- the socket of its process: a name in the directory of wake-ups
    until INTEGER NOT NULL,              -- real time after which it is surely gone
    PRIMARY KEY (namespace, queue, since, waiter)
) WITHOUT ROWID;
CREATE INDEX idle_waiter ON idle (waiter);

-- Callers that wait for the end of a job. The queue '' has the waiters for cancel requests; the id is the worker.
CREATE TABLE waits (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    id TEXT NOT NULL,
    waiter TEXT NOT NULL,
    address TEXT NOT NULL,
    until INTEGER NOT NULL,
    PRIMARY KEY (namespace, queue, id, waiter)
) WITHOUT ROWID;
CREATE INDEX waits_waiter ON waits (waiter);

-- Listeners to events; events are stored only while there is one.
CREATE TABLE listeners (
    waiter TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    address TEXT NOT NULL,
    until INTEGER NOT NULL               -- real time; refreshed while the listener lives
) WITHOUT ROWID;

-- The newest events, numbered.
CREATE TABLE events (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    at INTEGER NOT NULL,                 -- real time, for trimming
    note BLOB NOT NULL                   -- an encoded Note
);
