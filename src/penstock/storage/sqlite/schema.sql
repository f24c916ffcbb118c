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
    tick INTEGER,                        -- the earliest next tick of its schedules, or NULL
    ticker TEXT,                         -- the worker that fires its ticks, or NULL: the holder of the alarm of schedules
    -- How many rows of jobs there are in each place; later ones for a further try apart.
    n_later INTEGER NOT NULL DEFAULT 0,
    n_ready INTEGER NOT NULL DEFAULT 0,
    n_lane INTEGER NOT NULL DEFAULT 0,
    n_running INTEGER NOT NULL DEFAULT 0,
    n_blocked INTEGER NOT NULL DEFAULT 0,
    n_completed INTEGER NOT NULL DEFAULT 0,
    n_failed INTEGER NOT NULL DEFAULT 0,
    n_cancelled INTEGER NOT NULL DEFAULT 0,
    n_suspended INTEGER NOT NULL DEFAULT 0,
    n_retrying INTEGER NOT NULL DEFAULT 0,
    n_parked INTEGER NOT NULL DEFAULT 0,
    damaged INTEGER NOT NULL DEFAULT 0,  -- how many records were found that could not be read
    pause_until INTEGER,                 -- when its pause ends, NULL: not by itself
    pause_by TEXT,                       -- who paused it
    -- 1: a limit holds for it or its groups, or one of its groups is paused; its runs take the paths of limits.
    limited INTEGER NOT NULL DEFAULT 0,
    tat INTEGER,                         -- the state of its own rate (microseconds), NULL: no start is unpaid
    step INTEGER,                        -- the step of the rate at the last start
    at INTEGER,                          -- when that was
    epoch INTEGER NOT NULL DEFAULT 0,    -- the number of changes that all closed groups must be looked at for
    changed INTEGER NOT NULL DEFAULT 0,  -- when the last change was
    looked INTEGER NOT NULL DEFAULT 0,   -- when a group was last closed until a time
    -- Transitions since it was created, beside `finished`.
    t_failed INTEGER NOT NULL DEFAULT 0,
    t_cancelled INTEGER NOT NULL DEFAULT 0,
    t_retried INTEGER NOT NULL DEFAULT 0,
    t_stalled INTEGER NOT NULL DEFAULT 0,
    t_timed_out INTEGER NOT NULL DEFAULT 0,
    flows INTEGER NOT NULL DEFAULT 0,    -- 1: it may have rows in generations or notices; its jobs take the paths of flows
    UNIQUE (namespace, name)
);

-- Numbers of deleted queues whose rows purge deletes in bounded steps.
CREATE TABLE deleted_queues (k INTEGER PRIMARY KEY);

-- One row per job, and one more for the blocked successor of a running one.
CREATE TABLE jobs (
    n INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,              -- queues.k
    id TEXT NOT NULL,                    -- the job's id within its queue
    twin INTEGER NOT NULL DEFAULT 0,     -- 1: the blocked successor of the running job with this id
    place INTEGER NOT NULL,              -- -1 parked, 0 later, 1 ready, 2 in its lane, 3 running, 4 blocked, 5 completed, 6 failed, 7 cancelled, 8 suspended
    rank INTEGER NOT NULL DEFAULT 0,     -- minus the priority, so that every order is ascending
    time INTEGER NOT NULL,               -- the order stamp: run-at or acceptance
    seq INTEGER NOT NULL,                -- the sequence number of its acceptance
    due INTEGER NOT NULL,                -- when it may run
    created INTEGER NOT NULL,            -- when it was accepted
    grp TEXT,                            -- its group, or NULL
    retried INTEGER NOT NULL DEFAULT 0,  -- 1: waits out a backoff or is suspended after a run, and holds its group meanwhile
    solo INTEGER NOT NULL DEFAULT 0,     -- 1: must not share a batch
    format INTEGER NOT NULL DEFAULT 1,   -- how its headers, bounds and payload are to be read
    attempts INTEGER DEFAULT 0,          -- claims so far
    retries INTEGER DEFAULT 0,           -- failed runs so far
    stalls INTEGER DEFAULT 0,            -- lost runs so far
    timeouts INTEGER DEFAULT 0,          -- timed-out runs so far
    start_by INTEGER,                    -- when it expires, until its first run begins
    cost INTEGER NOT NULL DEFAULT 1,     -- what a run takes from rates that count costs
    window_ms INTEGER,                   -- how long it takes its id, or NULL
    earliest INTEGER,                    -- no update moves it before this: the end of the window in which it was put
    settled TEXT,                        -- the last outcome that sent it back: a letter and the token
    flags INTEGER,                       -- a blocked successor's update flags, as bits; of an ended job, 1: its id is free
    token TEXT,                          -- the fence of the run it is in, or that ended it
    worker TEXT,                         -- who runs it, or who ended it
    until INTEGER,                       -- the end of its lease; of a suspended job when it wakes (1 << 60: not by the clock)
    begun INTEGER,                       -- when its last run began, NULL if none ended it; of a blocked successor, the run it waits for
    cancel TEXT,                         -- the cancel mode asked for
    cancel_ttl INTEGER,                  -- how long to keep it if it ends by that
    expires INTEGER,                     -- when an ended job is forgotten (1 << 60: never); NULL before its end
    number INTEGER,                      -- position among the ended jobs of its queue
    finished INTEGER,                    -- when it ended
    error_key TEXT,                      -- of a failed job, the key of its error; NULL without one
    progress BLOB,                       -- the last report of this run
    error BLOB,                          -- the last error, encoded
    result BLOB,                         -- what it gave, encoded
    headers BLOB,                        -- opaque
    bounds BLOB,                         -- the job's own bounds, opaque
    payload BLOB                         -- opaque; last, since it is the longest
);

-- Entries of the histories of jobs: of failed attempts, logs and streams.
CREATE TABLE histories (
    queue INTEGER NOT NULL,              -- queues.k
    id TEXT NOT NULL,                    -- the job's id
    kind INTEGER NOT NULL,               -- 0 attempts, 1 log, 2 stream
    n INTEGER NOT NULL,                  -- its number, from 1 on
    at INTEGER NOT NULL,                 -- when the attempt ended, or the line or part came
    attempt INTEGER NOT NULL,            -- the number of the attempt
    size INTEGER NOT NULL,               -- of a log or stream: the bytes of this entry and all before it
    mark TEXT,                           -- of the last entry of a report: token, and number of the entry within its run
    outcome TEXT,                        -- of an attempt: how it ended,
    started INTEGER,                     -- when it began, or NULL,
    worker TEXT,                         -- who ran it,
    data BLOB,                           -- and its error, NULL for that of the first entry; of a log the line, of a stream the part
    PRIMARY KEY (queue, id, kind, n)
) WITHOUT ROWID;
CREATE TRIGGER jobs_histories AFTER DELETE ON jobs WHEN old.twin = 0 BEGIN
    DELETE FROM histories WHERE queue = old.queue AND id = old.id;
END;

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
-- Suspended jobs by their wake time.
CREATE INDEX jobs_suspended ON jobs (queue, until, seq, place) WHERE place = 8;
-- Jobs of a group in backoff, or suspended after a run, which hold it.
CREATE INDEX jobs_backoff ON jobs (queue, grp, due, seq, place) WHERE retried = 1 AND grp IS NOT NULL;
-- Runs by the end of their lease; with their begin, so that a listing need not read the table to sort them.
CREATE INDEX jobs_running ON jobs (queue, until, begun, place) WHERE place = 3;
-- Blocked successors by the begin of the runs that they wait for.
CREATE INDEX jobs_blocked ON jobs (queue, begun, place) WHERE place = 4;
-- Jobs that have not begun and must by a time.
CREATE INDEX jobs_start_by ON jobs (queue, start_by, seq) WHERE start_by IS NOT NULL;
-- Finished jobs in the order in which they expire.
CREATE INDEX jobs_ended ON jobs (queue, place, expires, number) WHERE expires IS NOT NULL;

-- Failed jobs by the key of their error.
CREATE INDEX jobs_error ON jobs (queue, error_key, number, place) WHERE place = 6 AND error_key IS NOT NULL;

-- Error groups: failed jobs of a queue whose errors have one key; 200 of a queue at most.
CREATE TABLE error_groups (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,                 -- the queue's name
    key TEXT NOT NULL,
    first INTEGER NOT NULL,              -- the first failure, and the last one
    last INTEGER NOT NULL,
    count INTEGER NOT NULL,              -- how many there were
    type TEXT NOT NULL,
    message TEXT NOT NULL,
    kind TEXT NOT NULL,
    sample_id TEXT NOT NULL,             -- the job that failed last
    PRIMARY KEY (namespace, queue, key)
) WITHOUT ROWID;
CREATE INDEX error_groups_last ON error_groups (last);

-- Statistics of a queue, or of all queues together (the empty name).
CREATE TABLE stats (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,                 -- the queue's name
    changed INTEGER NOT NULL,            -- when it was last changed, or (of all queues) last sampled
    times BLOB,                          -- the times that workers have measured, or NULL
    newest BLOB,                         -- the newest sample, or NULL
    looked INTEGER,                      -- when it was last found unchanged after that, or NULL
    base BLOB,                           -- its totals from before it was forgotten, or NULL
    summed BLOB,                         -- the totals and times that the samples of all queues have counted, or NULL
    PRIMARY KEY (namespace, queue)
) WITHOUT ROWID;
CREATE INDEX stats_changed ON stats (changed);

-- Samples of queues: 120 of minutes, 288 of ten minutes, 336 of hours.
CREATE TABLE history (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,                 -- as in `stats`
    step INTEGER NOT NULL,               -- 1, 10 or 60
    slot INTEGER NOT NULL,               -- the number of the step since 1970, modulo the number of samples
    number INTEGER NOT NULL,             -- the number of the step
    sample BLOB NOT NULL,
    PRIMARY KEY (namespace, queue, step, slot)
) WITHOUT ROWID;

-- Groups that are held, in the rotation, closed or paused, or whose starts are not paid; an idle group has no row.
-- A group of a limited queue with ready jobs has either a turn or a time of opening.
CREATE TABLE lanes (
    queue INTEGER NOT NULL,              -- queues.k
    grp TEXT NOT NULL,                   -- the group
    holds INTEGER NOT NULL DEFAULT 0,    -- its running jobs and its heads in backoff
    turn_time INTEGER,                   -- its turn in the rotation, NULL while held
    turn_seq INTEGER,                    -- second part of the turn
    parked INTEGER,                      -- the format of its head, if only newer software can run that
    backoffs INTEGER NOT NULL DEFAULT 0, -- of the holds those in backoff; counted in limited queues only
    tat INTEGER,                         -- the state of its rate, as in `queues`
    step INTEGER,
    at INTEGER,
    used INTEGER NOT NULL DEFAULT 0,     -- its starts in the turn that it keeps
    stamp_time INTEGER,                  -- the turn that it keeps, or NULL
    stamp_seq INTEGER,
    opens INTEGER,                       -- when it may start a job (1 << 60: by an event); NULL: it may, or has none
    epoch INTEGER,                       -- the epoch of its queue when it was closed; -1: it has changed since
    paused INTEGER,                      -- since when it is paused, or NULL
    pause_until INTEGER,                 -- when its pause ends, NULL: not by itself
    pause_by TEXT,                       -- who paused it
    PRIMARY KEY (queue, grp)
) WITHOUT ROWID;
CREATE INDEX lanes_turn ON lanes (queue, turn_time, turn_seq) WHERE turn_time IS NOT NULL AND parked IS NULL;
CREATE INDEX lanes_parked ON lanes (queue, parked) WHERE parked IS NOT NULL;
-- Closed groups by the time of their opening, and those that must be looked at again.
CREATE INDEX lanes_opens ON lanes (queue, opens) WHERE opens IS NOT NULL;
CREATE INDEX lanes_epoch ON lanes (queue, epoch) WHERE opens IS NOT NULL;
-- Groups whose starts are not paid, and paused ones.
CREATE INDEX lanes_tat ON lanes (queue, tat) WHERE tat IS NOT NULL;
CREATE INDEX lanes_paused ON lanes (queue, grp) WHERE paused IS NOT NULL;

-- Limits: of families, queues, every group of a queue and single groups.
CREATE TABLE limits (
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,                 -- the queue's name: it need not exist yet; of the kind family its name
    kind TEXT NOT NULL,                  -- family, queue, groups or group
    grp TEXT NOT NULL,                   -- of the kind group, else empty
    version INTEGER NOT NULL,
    rule BLOB,                           -- the packed rule, or NULL
    settings BLOB NOT NULL,              -- opaque
    PRIMARY KEY (namespace, queue, kind, grp)
) WITHOUT ROWID;

-- The state of the rate of each family with unpaid starts, as in `queues`.
CREATE TABLE families (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    tat INTEGER NOT NULL,
    step INTEGER NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
) WITHOUT ROWID;

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

-- When to put jobs into a queue, and which: one row per schedule.
CREATE TABLE schedules (
    n INTEGER PRIMARY KEY,
    queue INTEGER NOT NULL,              -- queues.k
    name TEXT NOT NULL,
    version INTEGER NOT NULL,            -- changes with every change of the row: who fires must know it
    cursor INTEGER NOT NULL,             -- the last tick that was decided
    next INTEGER,                        -- the next tick, or NULL
    last_id TEXT,                        -- the job of the last tick that was put
    last_at INTEGER,                     -- the nominal time of that tick
    fired INTEGER NOT NULL,              -- how many of its ticks became jobs,
    skipped INTEGER NOT NULL,            -- found the last job unfinished,
    missed INTEGER NOT NULL,             -- were too late,
    dropped INTEGER NOT NULL,            -- or found too many waiting
    expires INTEGER,                     -- when it is forgotten, or NULL
    spec BLOB NOT NULL                   -- opaque; last, since it is the longest
);
CREATE UNIQUE INDEX schedules_name ON schedules (queue, name);
CREATE INDEX schedules_next ON schedules (queue, next, name) WHERE next IS NOT NULL;
CREATE INDEX schedules_expires ON schedules (queue, expires) WHERE expires IS NOT NULL;

-- Windows: ids that are taken although their jobs have completed, or still are there.
CREATE TABLE windows (
    queue INTEGER NOT NULL,              -- queues.k
    id TEXT NOT NULL,
    until INTEGER NOT NULL,              -- when the id is free
    PRIMARY KEY (queue, id)
) WITHOUT ROWID;
CREATE INDEX windows_until ON windows (queue, until);

-- The last heartbeat of each worker.
CREATE TABLE workers (
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    seen INTEGER NOT NULL,               -- the last beat
    until INTEGER NOT NULL,              -- when the word of it ends
    info BLOB NOT NULL,                  -- the heartbeat of the worker, opaque
    request TEXT,                        -- what the worker is asked for, or NULL,
    request_until INTEGER,               -- until this time
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- What operators have changed: the audit log.
CREATE TABLE activity (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    at INTEGER NOT NULL,
    entry BLOB NOT NULL                  -- opaque
);
CREATE INDEX activity_namespace ON activity (namespace, n);

-- Bulk actions, for a day after their last change.
CREATE TABLE bulk_actions (
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    version INTEGER NOT NULL,            -- changes with every change of the row
    changed INTEGER NOT NULL,            -- when it was changed
    record BLOB NOT NULL,                -- opaque
    PRIMARY KEY (namespace, id)
) WITHOUT ROWID;

-- The last releases.
CREATE TABLE releases (
    namespace TEXT NOT NULL,
    name TEXT NOT NULL,
    at INTEGER NOT NULL,
    PRIMARY KEY (namespace, name)
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

-- Listeners to events; an event is stored only while there is one that wants it.
CREATE TABLE listeners (
    waiter TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    address TEXT NOT NULL,
    until INTEGER NOT NULL,              -- real time; refreshed while the listener lives
    queue TEXT,                          -- the queue whose events it wants; NULL: all
    names TEXT NOT NULL                  -- the names of the events that it wants, as ',completed,failed,'; '': all
) WITHOUT ROWID;

-- The newest events: those of one transaction and queue in a row, with the number of the last of them.
CREATE TABLE events (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    queue TEXT NOT NULL,
    at INTEGER NOT NULL,                 -- real time, for trimming
    note BLOB NOT NULL                   -- a list of encoded `EventRecord`s
);
