-- What each connection makes for itself; nothing of it is in the file.

-- A plain job (see put.py) that is inserted here is put into the queue with this number, if there is one, unless
-- somebody else must hear of it or other jobs must enter before it. One statement that is a transaction by itself
-- takes a quarter less time than BEGIN, a look at the queue, INSERT, UPDATE and COMMIT.
CREATE TEMP VIEW plain AS SELECT queue, id, payload, rank, created, format FROM jobs;
CREATE TEMP TRIGGER put_alone INSTEAD OF INSERT ON plain BEGIN
    UPDATE queues SET seq = seq + 1, time = max(time, NEW.created), n_ready = n_ready + 1
    WHERE k = NEW.queue AND n_later = 0 AND n_retrying = 0
        AND NOT EXISTS (SELECT 1 FROM idle WHERE namespace = queues.namespace AND queue = queues.name)
        AND NOT EXISTS (SELECT 1 FROM listeners WHERE namespace = queues.namespace);
    INSERT INTO jobs (queue, id, place, rank, time, seq, due, created, format, headers, limits, payload)
    SELECT k, NEW.id, 1, NEW.rank, time, seq, NEW.created, NEW.created, NEW.format, x'', x'', NEW.payload
    FROM queues WHERE k = NEW.queue AND changes() = 1;
END;
