"""Every key of the Redis storage: its name, its type, its meaning. This is the schema.

All keys of a queue start with `<namespace>:{<family>}:<queue>:`, so that a family shares a Cluster
slot. Names are percent-encoded where they could forge a key; long ones become a digest.
"""

from __future__ import annotations

import hashlib
from urllib.parse import quote

from penstock.model.ids import family_of

__all__ = ["QUEUE_KEYS", "SCHEMA_VERSION", "Keys"]

SCHEMA_VERSION = 1

#: The keys of one queue.
QUEUE_KEYS: dict[str, str] = {
    "jobs": "hash id -> job record: what was asked, and the counts up to the last return",
    "runs": "hash id -> run record: the live claim, if the job is running",
    "ends": "hash id -> end record: how it ended, while that is kept",
    "blocked": "hash id -> update flags + job record: the successor of a running job",
    "ready": "sorted set, by bytes: rank + 'j' + id of due jobs, rank + 'g' + group of free groups",
    "scheduled": "sorted set, by bytes: due + sequence + id",
    "retrying": "sorted set, by bytes: due + sequence + id",
    "lanes": "sorted set, by bytes: group + NUL NUL, time + sequence + id of due jobs with a group",
    "turns": "hash group -> its member of ready, or of parked; behind the first the head of its lane, if that is known",
    "holds": "hash group -> how many of its jobs run or wait for a retry; '' is nobody's",
    "parked": "sorted set, by bytes: format + member of ready, of what only newer software can run",
    "backoffs": "sorted set, by bytes: group + NUL NUL, due + sequence + id of jobs with a group in backoff",
    "leases": "sorted set token -> deadline; token~1 and on for runs with a deadline of their own",
    "batches": "hash b + token -> ids, n + token -> how many still run, w + token -> worker, p + token -> parts",
    "completed": "sorted set, by bytes: expiry + number + id",
    "failed": "sorted set, by bytes: expiry + number + id",
    "cancelled": "sorted set, by bytes: expiry + number + id",
    "gone": "sorted set token + state + id -> until when a settlement of an unkept job is remembered",
    "meta": "hash seq, time, finished, paused, parked, alarm",
    "waits": "hash id -> channels of those who wait for its end",
    "wake": "list of at most one token: one idle worker is to look",
}

_MAX_SPELLED = 120


def spell(name: str) -> str:
    """A name as a part of a key: injective, and without `:`, `{` or `}`."""
    text = quote(name, safe="-_./~ ")
    if len(text) <= _MAX_SPELLED:
        return text
    return "%%" + hashlib.sha256(name.encode()).hexdigest()


class Keys:
    """Spells the keys of one namespace. `cluster` keeps what a script touches in the family's slot."""

    def __init__(self, namespace: str, *, cluster: bool = False) -> None:
        self.namespace = spell(namespace)
        self.cluster = cluster
        self.schema = f"{self.namespace}:schema"
        self.workers = f"{self.namespace}:{{workers}}:present"
        self.families = f"{self.namespace}:families"
        self.events = f"{self.namespace}:events"
        self._prefixes: dict[str, str] = {}
        #: What every script is given: `ears` and `names`. On a Cluster each family has its own.
        self.shared = [self.ears(""), self.names("")]

    def prefix(self, queue: str) -> str:
        """What all keys of a queue start with."""
        known = self._prefixes.get(queue)
        if known is None:
            if len(self._prefixes) > 10_000:
                self._prefixes.clear()
            known = f"{self._family(family_of(queue))}:{spell(queue)}:"
            self._prefixes[queue] = known
        return known

    def _family(self, family: str) -> str:
        """The hash tag; a Cluster would not see an empty one, so the empty family is `%`."""
        return f"{self.namespace}:{{{spell(family) or '%'}}}"

    def ears(self, family: str) -> str:
        """A string with the channel of the event feed, there while somebody listens."""
        return f"{self._family(family)}:ears" if self.cluster else f"{self.namespace}:ears"

    def names(self, family: str) -> str:
        """A set of the names of the queues there are (of a family, on a Cluster)."""
        return f"{self._family(family)}:names" if self.cluster else f"{self.namespace}:names"

    def puts(self, queue: str, caller: str) -> str:
        """A string with the number of a caller's last put of made-up ids, for a while; as put.lua spells it."""
        return f"{self.prefix(queue)}puts:{caller}"

    def confirmed(self, queue: str) -> str:
        """A string that is written behind a put that is to be confirmed, for a second."""
        return f"{self.prefix(queue)}confirmed"

    def cancel(self, worker: str) -> str:
        """The channel on which a worker hears that somebody asked a run of its to end; as cancel.lua spells it."""
        return f"{self.namespace}:cancel:{worker}"

    def done(self, client: str) -> str:
        """The channel on which a client hears that a job it waits for has ended."""
        return f"{self.namespace}:done:{client}"
