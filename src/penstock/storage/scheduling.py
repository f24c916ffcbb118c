"""The optional part of a storage that keeps schedules, and puts the jobs of their ticks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from penstock.model.job import NewJob

__all__ = ["DueSchedules", "Fired", "Firing", "Overlap", "SchedulePage", "ScheduleRecord", "Scheduling", "TickJob"]

#: The schedules of one queue that one call of `due` returns at most.
MAX_DUE = 100

#: How late (ms) a tick is when other workers than the holder of the alarm fire it, and how often they look.
HELP_MS, LOOK_MS = 1_000, 5_000

#: What happens to a tick while the last job of its schedule is unfinished.
Overlap = Literal["allow", "skip", "queue", "replace", "kill"]


class ScheduleRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is stored. Times are milliseconds of the storage's clock.

    `spec` has the times of its ticks, the jobs it puts, and its declared and changed parts; it is opaque to the
    storage. `cursor` is the last tick that was decided, `next` the next one, None if there is none (paused, retired,
    over). `last_id` and `last_at` are id and nominal time of the last tick for which a job was put, also by hand. The
    four counters are those of its ticks. `expires` is when it is forgotten, None for never: from then on no verb
    returns it, and purge deletes it.
    """

    queue: str
    name: str
    spec: bytes
    cursor: int
    version: int = 0
    next: int | None = None
    last_id: str | None = None
    last_at: int | None = None
    fired: int = 0
    skipped: int = 0
    missed: int = 0
    dropped: int = 0
    expires: int | None = None


class TickJob(msgspec.Struct, frozen=True, gc=False):
    """The job of one tick, with the nominal time (ms) of the tick; its `update` and `waiter` have no effect."""

    at: int
    job: NewJob


class Firing(msgspec.Struct, frozen=True, kw_only=True):
    """The ticks of a schedule that are due, decided from the record of this version.

    `ticks` are those that become jobs unless `overlap` forbids it, in order; `missed` is the number of those that
    do not. `cursor` and `next` replace those of the record. With `manual` neither the counters, the cursor nor `next`
    change: a tick by hand. `room` is, with the overlap `queue`, how many jobs of the group may be queued: ticks beyond
    are dropped. `cancel_ttl` is how long (ms) a job is kept that the overlap `replace` or `kill` cancels, None for
    ever. `expires`, if given, replaces that of the record: for its last tick.
    """

    queue: str
    name: str
    version: int
    ticks: tuple[TickJob, ...] = ()
    overlap: Overlap = "skip"
    missed: int = 0
    cursor: int = 0
    next: int | None = None
    manual: bool = False
    room: int = 1000
    cancel_ttl: int | None = 0
    expires: int | None = None


class Fired(msgspec.Struct, frozen=True, gc=False):
    """The answer to a firing: the number of ticks that became jobs, were skipped or were dropped.

    `stale` means that the version had changed, and nothing happened. `version` is the one after it. `known` is the
    number of ticks for which a job with their id was there already: they count as fired, and no job was put. `ids` are
    those of the jobs that were put.
    """

    version: int
    stale: bool = False
    fired: int = 0
    skipped: int = 0
    dropped: int = 0
    known: int = 0
    ids: tuple[str, ...] = ()


class DueSchedules(msgspec.Struct, frozen=True):
    """The answer to `due`: the records whose next tick is due, and when (ms) this worker must ask again.

    `look_at` is None if none of the queues has a schedule with a next tick. It is the time of the call if there are
    records: after their ticks have fired, there may be more.
    """

    schedules: list[ScheduleRecord]
    look_at: int | None = None


class SchedulePage(msgspec.Struct, frozen=True):
    """A page of the schedules of one queue, by name; `cursor` leads to the next one, None at the end."""

    schedules: list[ScheduleRecord]
    cursor: str | None = None


@runtime_checkable
class Scheduling(Protocol):
    """A storage with schedules. On one without them, the calls that need them raise `NotSupported`."""

    async def set_schedule(self, record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        """Create or replace a schedule if its version is still this one, 0 for none; returns the new version.

        None means that the version is another, and nothing changed. The firing is carried out first, in the same step,
        for the ticks that were due before the change; its own version and its `next` have no effect. Counters,
        `last_id` and `last_at` of the stored record are kept; a new record begins with those given.
        The new version is the time (ms) of the call, or the old version plus 1 if that is larger: so a schedule that is
        deleted and created again does not begin with an earlier version.
        A tick that is earlier than all others of the queue takes the alarm from its holder: see `due`.
        """
        ...

    async def get_schedule(self, queue: str, name: str) -> ScheduleRecord | None:
        """Return a schedule, or None."""
        ...

    async def due(self, queues: Sequence[str], worker: str) -> DueSchedules:
        """Return the schedules of these queues whose next tick is due, 100 of each queue at most, the earliest first.

        One worker at a time holds the alarm of a queue: it gets the due schedules, and `look_at` is the next tick.
        Others get them when the first is `HELP_MS` late, and take the alarm by that; else they look again then, and
        after `LOOK_MS` at most. With an empty `worker` they are returned even if a worker holds the alarm, which stays
        there: for a caller that does not look again. Each queue also gives fewer when their records reach `MAX_BYTES`.
        """
        ...

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        """Put the jobs of ticks and move the cursors, each schedule in one step, if its version is unchanged.

        The last job of the schedule is unfinished while it waits, runs or waits for a retry. Then the overlap `skip`
        puts nothing, `replace` and `kill` cancel it (a running one by `signal` or `kill`) and put the next; `allow` and
        `queue` put the tick all the same. Ticks are judged one after the other. A job is put only if there is no record
        of its id; otherwise the tick counts as fired, nothing is cancelled and `last_id` stays. A repeated firing is
        stale, so a lost answer does no harm.
        """
        ...

    async def drop_schedule(self, queue: str, name: str, version: int) -> bool:
        """Delete a schedule if its version is still this one; the jobs that it put stay."""
        ...

    async def schedules(self, queue: str, after: str | None = None, limit: int = 100) -> SchedulePage:
        """Return a page of the schedules of a queue, by the UTF-8 bytes of their names."""
        ...
