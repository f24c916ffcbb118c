-- The view and trigger of the fast path of put (see fast_put.py). Each connection creates them for itself as
-- temporary objects; nothing of this is stored in the file.

-- A row inserted into this view puts a plain job into the queue with that number, if there is one, unless a job has to
-- expire first, an idle worker must be woken or a listener wants the event.
-- `put_one` and `queue_grow` in statements.sql are the general path: the rows written must be equal to theirs.
CREATE TEMP VIEW plain AS SELECT queue, id, payload, rank, created, format FROM jobs;
CREATE TEMP TRIGGER put_alone INSTEAD OF INSERT ON plain BEGIN
    UPDATE queues SET seq = seq + 1, time = max(time, NEW.created), n_ready = n_ready + 1
    WHERE k = NEW.queue AND seq < 1 << 60 AND time < 1 << 60 AND n_ready < 1 << 60 AND (expiry IS NULL OR expiry > NEW.created)
        AND NOT EXISTS (SELECT 1 FROM idle WHERE namespace = queues.namespace AND queue = queues.name)
        AND NOT EXISTS (SELECT 1 FROM listeners WHERE namespace = queues.namespace AND (queue IS NULL OR queue = queues.name)
            AND (names = '' OR instr(names, ',enqueued,')));
    INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, format, headers, bounds, payload)
    SELECT k, NEW.id, 1, NEW.rank, time, seq, NEW.created, NEW.created, NEW.format, x'', x'', NEW.payload
    FROM queues WHERE k = NEW.queue AND changes() = 1;
END;
