"""Keys of the Redis storage, with name, type and meaning of each: the schema.

All keys of a queue start with `<namespace>:{<family>}:<queue>:`, so that a family shares a Cluster slot. Characters
of names that have a meaning in keys are percent-encoded; long names are replaced by a digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from urllib.parse import quote

from penstock.model.ids import family_of

__all__ = ["QUEUE_KEYS", "SCHEMA_VERSION", "Keys", "queue_ref"]

SCHEMA_VERSION = 6

#: The keys of one queue.
QUEUE_KEYS: dict[str, str] = {
    "jobs": "hash id -> job record: the job as it was put, and its counts up to its last run",
    "runs": "hash id -> run record: the live claim, if the job is running",
    "ends": "hash id -> end record of a finished job, while it is kept",
    "blocked": "hash id -> update flags + job record: the successor of a running job",
    "ready": "sorted set, by bytes: rank + 'j' + id of due jobs, rank + 'g' + group of free groups",
    "scheduled": "sorted set, by bytes: due + sequence + id",
    "retrying": "sorted set, by bytes: due + sequence + id",
    "lanes": "sorted set, by bytes: group + NUL NUL, time + sequence + id of due jobs with a group",
    "turns": "hash group -> its member of ready, or of parked; after the former the head of its lane, if that is known",
    "holds": "hash group -> how many of its jobs run or wait for a retry; '' belongs to no group",
    "parked": "sorted set, by bytes: format + member of ready, of jobs that only newer software can run",
    "backoffs": "sorted set, by bytes: group + NUL NUL, due + sequence + id of jobs with a group in backoff",
    "expiring": "sorted set, by bytes: start-by time + sequence + id of jobs that have not begun",
    "windows": "sorted set id -> until when it is taken: the window of a job that is there, or has completed",
    "leases": "sorted set token -> deadline; token~1 and on for runs with a deadline of their own; "
    "'!' + token -> the time of the claim, less 2^52",
    "batches": "hash b + token -> ids, n + token -> how many still run, "
    "w + token -> time of the claim (6 bytes) and worker, p + token -> parts",
    "completed": "sorted set, by bytes: expiry + number + id",
    "failed": "sorted set, by bytes: expiry + number + id",
    "cancelled": "sorted set, by bytes: expiry + number + id",
    "error_index": "sorted set, by bytes: error key (16) + number + id of failed jobs whose errors have a key",
    "error_order": "sorted set error key -> when (ms) it was last seen; 200 at most",
    "errors": "hash error key -> group record: first failure, count, type, message, kind, id of the last job (msgpack)",
    "stats": "string: counts and sums of the times of waits and runs, as workers have measured them (msgpack)",
    "history": "hash m, t or h + number -> sample, n -> the newest; u, b, s: see _ring.lua",
    "gone": "sorted set token + state + id -> until when the settlement of a job that is not kept is remembered",
    "limits": "hash '' (the queue), g (every group) or g + group -> rule",
    "settings": "hash, as in limits -> version + the settings that the rule follows from, which no script reads",
    "ruled": "sorted set, by bytes: the groups with a limit of their own or a pause",
    "gates": "hash group, '' for the queue itself -> gate record: what its rate has used, its pause, when it opens",
    "closed": "sorted set, by bytes: when it opens + group, of groups with due jobs whose gates are closed",
    "recheck": "sorted set, by bytes: the same of closed groups whose rule or pause has changed",
    "idle_gates": "sorted set group -> when (ms) a part of its gate record can be forgotten",
    "meta": "hash seq, time, finished, failed, cancelled, retried, stalled, timed_out, "
    "paused (since, until, by), parked, alarm, expiry, damaged, big (length of the "
    "longest record), limited (what limits it), changed (when the rule of every group changed), tick (the earliest "
    "next tick of the schedules), ticker (the worker that holds their alarm)",
    "schedules": "hash name -> schedule record",
    "ticks": "sorted set, by bytes: 't' + next tick + name, 'e' + expiry + name, 'n' + name of schedules",
    "attempts": "hash id -> its failed attempts: see _histories.lua",
    "log": "hash id -> the lines that its runs have logged",
    "generations": "hash id -> its part in flows: see _flows.lua; "
    "after an id NUL and 'b': that of its blocked successor",
    "notices": "hash id, as in generations -> whom the job notifies when it ends (msgpack)",
    "suspended": "sorted set, by bytes: wake time + sequence + id",
    "successors": "sorted set id -> when the run began that it waited for, "
    "of blocked jobs behind a job that does not run",
    "stream": "hash h + id -> head, c + number + id -> chunk of the parts that its runs have emitted",
    "waits": "hash id -> the clients that wait for its end, each with secret (32 bytes) and channel; "
    "after an id NUL and 'r': readers of its histories",
    "wake": "list of at most one element, which wakes one idle worker",
}

_MAX_ENCODED = 120


def encode_name(name: str) -> str:
    """Encode a name as a part of a key: injective, and without `:`, `{` or `}`."""
    text = quote(name, safe="-_./~ ")
    if len(text) <= _MAX_ENCODED:
        return text
    return "%%" + hashlib.sha256(name.encode()).hexdigest()


def queue_ref(queue: str) -> str:
    """Return a queue as the records of flows name it: after NUL the start of its keys, if scripts cannot derive it."""
    family = family_of(queue)
    encoded = encode_name(queue)
    if family == queue.partition("/")[0] and not encoded.startswith("%%") and "\0" not in queue:
        return queue
    return f"{queue}\0{{{encode_name(family) or '%'}}}:{encoded}:"


class Keys:
    """Names of the keys of one namespace. With `cluster` a script touches only keys in the slot of a family.

    Keys are in the database of the connection. Channels belong to a server as a whole, so their names have its number.
    """

    def __init__(self, namespace: str, *, cluster: bool = False, database: int = 0) -> None:
        self.namespace = encode_name(namespace)
        self._channels = f"{self.namespace}:{database}"
        self.cluster = cluster
        self.schema = f"{self.namespace}:schema"
        self.workers = f"{self.namespace}:{{workers}}:present"
        #: Hash worker -> until when (6 bytes) + what it is asked for.
        self.requests = f"{self.namespace}:{{workers}}:requests"
        self.families = f"{self.namespace}:families"
        #: The start of the keys of all queues together: `history` as that of a queue, `minute`, the last one sampled.
        self.ops = f"{self.namespace}:{{ops}}:"
        self.events = f"{self._channels}:events"
        self._prefixes: dict[str, str] = {}
        #: The keys that every script gets. On a Cluster each family has its own.
        self.shared = [self.listeners(""), self.names("")]

    def prefix(self, queue: str) -> str:
        """Return the start of all keys of a queue."""
        known = self._prefixes.get(queue)
        if known is None:
            if len(self._prefixes) > 10_000:
                self._prefixes.clear()
            known = f"{self._family(family_of(queue))}:{encode_name(queue)}:"
            self._prefixes[queue] = known
        return known

    def _family(self, family: str) -> str:
        """Return the start with the hash tag; a Cluster ignores an empty tag, so the empty family is `%`."""
        return f"{self.namespace}:{{{encode_name(family) or '%'}}}"

    def family_start(self, family: str) -> str:
        """Return the start of the keys of a family.

        outbox: sorted set of messages by their numbers (`_notices.lua`). open_flows: sorted set queue + NUL + id ->
        when the producer of an open flow last called. deleted:...: what a deleted queue has left for relay.
        """
        return f"{self._family(family)}:"

    def family_limit(self, family: str) -> str:
        """Return the key of a hash with the limit of a family: rule, settings and gate (`_families.lua`)."""
        return f"{self._family(family)}:limit"

    def listeners(self, family: str) -> str:
        """Return the key of a hash queue -> listeners to its events, '' -> secret and those to all (`_events.lua`)."""
        return f"{self._family(family)}:listeners" if self.cluster else f"{self.namespace}:listeners"

    def names(self, family: str) -> str:
        """Return the key of the set of queue names (of a family, on a Cluster)."""
        return f"{self._family(family)}:names" if self.cluster else f"{self.namespace}:names"

    def operators(self, name: str) -> str:
        """Return the key of records about operators.

        activity: list, newest first, of number and time (6 bytes each) + entry. bulk: hash id -> version and time of
        the last change + record. releases: list, newest first, of time + name.
        """
        return f"{self.namespace}:{{ops}}:{name}"

    def puts(self, queue: str, caller: str) -> str:
        """Return the key of the number of a caller's last put of made-up ids; `put.lua` builds the same."""
        return f"{self.prefix(queue)}puts:{caller}"

    def request(self, queue: str, request: str) -> str:
        """Return the key of the answer to a request, kept for its repetitions; `_once.lua` builds the same."""
        return f"{self.prefix(queue)}requests:{request}"

    def confirmed(self, queue: str) -> str:
        """Return the key of a string that is written after a put that must be confirmed, for a second."""
        return f"{self.prefix(queue)}confirmed"

    def events_of(self, queue: str | None, names: Collection[str] | None) -> str:
        """Return the channel of the listeners with this filter: one queue or all, these names or all."""
        if queue is None and names is None:
            return self.events
        return f"{self.events}:{encode_name(queue or '')}:{','.join(sorted(names or ()))}"

    def cancel(self, worker: str) -> str:
        """Return the channel that notifies a worker of cancel requests for its runs; all begin as that of '' does."""
        return f"{self._channels}:cancel:{worker}"

    def done(self, client: str) -> str:
        """Return the channel that notifies a client of the ends of the jobs it waits for."""
        return f"{self._channels}:done:{client}"
