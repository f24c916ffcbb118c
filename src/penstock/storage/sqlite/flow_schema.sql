-- The tables of flows; those of jobs are in `schema.sql`.

-- The part of a job in flows. All its rows in this table and the next four go with the job.
CREATE TABLE generations (
    job INTEGER PRIMARY KEY,             -- jobs.n
    queue INTEGER NOT NULL,              -- queues.k
    generation TEXT NOT NULL,            -- the mark that notices name
    parent BLOB,                         -- the flow that it belongs to, as msgpack: queue, id, generation; or NULL
    flags INTEGER NOT NULL,              -- bits, see `GenerationRow`
    extended_at INTEGER,                       -- of a job that is extended: when its producer last called; else NULL
    fresh INTEGER NOT NULL DEFAULT 0,    -- how often its journal was forgotten
    needs INTEGER NOT NULL DEFAULT 0,    -- the number of dependencies that its first run waits for
    total INTEGER NOT NULL DEFAULT 0,    -- the number of the next dependency
    adopted INTEGER NOT NULL DEFAULT 0,  -- of a plan: the follow-up jobs of its children
    closed INTEGER NOT NULL DEFAULT 0,   -- numbers the ends of its dependencies
    opening INTEGER NOT NULL DEFAULT 0,  -- how often it was opened again: older messages about it are void
    waiting INTEGER NOT NULL DEFAULT 0,  -- the open dependencies that it waits for now
    first INTEGER NOT NULL DEFAULT 0,    -- after a run: the first dependency that it waits for,
    count INTEGER NOT NULL DEFAULT 0,    -- and how many there are from it on
    wait BLOB,                           -- the signals that it waits for, as msgpack: checkpoint, names; or NULL
    cancel_ttl INTEGER,                  -- its next run is to know that it was cancelled: how long to keep it (-1: for ever)
    ended TEXT,                          -- how it ended, or NULL
    n_open INTEGER NOT NULL DEFAULT 0,   -- how many of its dependencies are open,
    n_ended BLOB,                        -- and how many ended in each way, as msgpack, or NULL
    plan BLOB,                           -- of a plan, as msgpack: `Plan`; else NULL
    binds BLOB                           -- opaque, or NULL
);
CREATE INDEX generations_extended ON generations (extended_at) WHERE extended_at IS NOT NULL;

-- What a job waits for.
CREATE TABLE dependencies (
    job INTEGER NOT NULL,                -- jobs.n of the job that waits
    number INTEGER NOT NULL,             -- from 0 on
    queue TEXT NOT NULL,                 -- name of the queue, and id, of the job that it waits for
    id TEXT NOT NULL,
    ended TEXT,                          -- how that ended, or NULL: open
    mode INTEGER NOT NULL DEFAULT 0,     -- how its notice closed it: bits, see `notice_bits`
    harm INTEGER,                        -- 1: makes the plan fail, 2: makes it cancelled, 3: is not met; else NULL
    closed INTEGER,                      -- its number among the ends of the dependencies of this job
    culprit INTEGER NOT NULL DEFAULT 0,  -- 1: its failure was that of the job
    value BLOB,                          -- the result or the error that was copied, or NULL
    PRIMARY KEY (job, number)
) WITHOUT ROWID;
CREATE INDEX dependencies_open ON dependencies (job, number) WHERE ended IS NULL;
CREATE INDEX dependencies_harm ON dependencies (job, harm, closed) WHERE harm IS NOT NULL;

-- Whom a job notifies when it ends.
CREATE TABLE notices (
    n INTEGER PRIMARY KEY,               -- in the order of their arrival
    job INTEGER NOT NULL,                -- jobs.n of the job that ends
    queue TEXT NOT NULL,                 -- the dependency: name of the queue, id, generation and number
    id TEXT NOT NULL,
    generation TEXT NOT NULL,
    number INTEGER NOT NULL,
    mode INTEGER NOT NULL,               -- bits, see `notice_bits`
    UNIQUE (job, queue, id, generation, number)
);

-- Checkpoints of jobs.
CREATE TABLE journal (
    job INTEGER NOT NULL,                -- jobs.n
    n INTEGER NOT NULL,                  -- its number, from 1 on
    name TEXT NOT NULL,
    kind TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, n)
) WITHOUT ROWID;
CREATE UNIQUE INDEX journal_name ON journal (job, name);

-- Signals that no run has read yet.
CREATE TABLE signals (
    job INTEGER NOT NULL,                -- jobs.n
    n INTEGER NOT NULL,                  -- in the order of their arrival
    name TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (job, n)
) WITHOUT ROWID;

CREATE TRIGGER jobs_flows AFTER DELETE ON jobs WHEN (SELECT flows FROM queues WHERE k = old.queue) IS NOT 0 BEGIN
    DELETE FROM generations WHERE job = old.n;
    DELETE FROM dependencies WHERE job = old.n;
    DELETE FROM notices WHERE job = old.n;
    DELETE FROM journal WHERE job = old.n;
    DELETE FROM signals WHERE job = old.n;
END;

-- The outbox: effects that were stored with their cause and are applied later, in the order of their numbers.
CREATE TABLE outbox (
    n INTEGER PRIMARY KEY AUTOINCREMENT,
    namespace TEXT NOT NULL,
    family TEXT NOT NULL,                -- of the job that caused it
    at INTEGER NOT NULL,                 -- when it was stored
    message BLOB NOT NULL                -- as msgpack, see `outbox.py`
);
CREATE INDEX outbox_family ON outbox (namespace, family, n);
