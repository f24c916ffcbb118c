"""The schedules of the model: records with a cursor, whose ticks become jobs in one step with the cursor's move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.storage.base import CancelAnswer, CancelMode, Put
from penstock.storage.scheduling import (
    HELP_MS,
    LOOK_MS,
    MAX_DUE,
    DueSchedules,
    Fired,
    Firing,
    SchedulePage,
    ScheduleRecord,
    TickJob,
)

if TYPE_CHECKING:
    from penstock.model.job import NewJob
    from tests.model import Job, Queue

__all__ = ["ModelSchedules", "next_tick"]

#: How a running job is cancelled for the next tick of its schedule.
CANCELS: dict[str, CancelMode] = {"replace": "signal", "kill": "kill"}


def next_tick(queue: Queue) -> int | None:
    """Return the earliest next tick of a queue's schedules, or None."""
    return min((record.next for record in queue.schedules.values() if record.next is not None), default=None)


class ModelSchedules:
    """The verbs of `Scheduling`, for the `Model`, which has the verbs of jobs."""

    now: int
    all: dict[str, Queue]

    if TYPE_CHECKING:

        def put(self, jobs: Sequence[NewJob], max_queued: int | None = None) -> list[Put]: ...
        def cancel(self, name: str, ids: Sequence[str], running: CancelMode, ttl: int | None) -> list[CancelAnswer]: ...
        def _expire(self, name: str) -> None: ...
        def _promote(self, queue: Queue) -> None: ...
        def _jobs_of_group(self, queue: Queue, group: str) -> list[Job]: ...
        def _expired(self, finish: Any) -> bool: ...
        def _make_queue(self, name: str) -> Queue: ...

    def set_schedule(self, record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        stored = self.get_schedule(record.queue, record.name)
        if version != (stored.version if stored else 0):
            return None
        queue = self._make_queue(record.queue)
        first = next_tick(queue)
        base = stored or record
        if firing is not None:
            base, _ = self._carry_out(queue, base, firing)
        new = replace(
            record, version=self._next_version(version), last_id=base.last_id, last_at=base.last_at, fired=base.fired,
            skipped=base.skipped, missed=base.missed, dropped=base.dropped,
        )  # fmt: skip
        queue.schedules[record.name] = new
        if new.next is not None and (first is None or new.next < first):
            queue.ticker = None
        return new.version

    def get_schedule(self, name: str, schedule: str) -> ScheduleRecord | None:
        queue = self.all.get(name)
        record = queue.schedules.get(schedule) if queue else None
        return None if record is None or self._forgotten(record) else record

    def due(self, queues: Sequence[str], worker: str) -> DueSchedules:
        found: list[ScheduleRecord] = []
        looks: list[int] = []
        for name in queues:
            queue = self.all.get(name)
            first = next_tick(queue) if queue else None
            if queue is None or first is None:
                continue
            if worker and queue.ticker not in (None, worker) and self.now < first + HELP_MS:
                looks.append(min(first + HELP_MS, self.now + LOOK_MS))
                continue
            queue.ticker = worker or queue.ticker
            late = [r for r in queue.schedules.values() if r.next is not None and r.next <= self.now]
            late = [r for r in late if not self._forgotten(r)]
            late.sort(key=lambda r: (r.next or 0, r.name.encode()))
            found += late[:MAX_DUE]
            looks.append(self.now if late else first if first > self.now else self.now + LOOK_MS)
        return DueSchedules(found, min(looks, default=None))

    def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        return [self._fire(firing) for firing in firings]

    def _fire(self, firing: Firing) -> Fired:
        record = self.get_schedule(firing.queue, firing.name)
        if record is None or record.version != firing.version:
            return Fired(record.version if record else 0, stale=True)
        queue = self.all[firing.queue]
        record, fired = self._carry_out(queue, record, firing)
        version = self._next_version(firing.version)
        queue.schedules[firing.name] = replace(record, version=version)
        return replace(fired, version=version)

    def _carry_out(self, queue: Queue, record: ScheduleRecord, firing: Firing) -> tuple[ScheduleRecord, Fired]:
        """Put the jobs of a firing, and return the record after it and the answer."""
        self._expire(record.queue)
        ids: list[str] = []
        known = skipped = dropped = 0
        for tick in firing.ticks:
            outcome = self._judge(queue, record, tick, firing)
            if outcome == "fired":
                self.put([replace(tick.job, update=None, waiter=None)])
                ids.append(tick.job.id)
                record = replace(record, last_id=tick.job.id, last_at=tick.at)
            known += outcome == "known"
            skipped += outcome == "skipped"
            dropped += outcome == "dropped"
        fired = len(ids) + known
        if not firing.manual:
            record = replace(
                record, cursor=firing.cursor, next=firing.next, fired=record.fired + fired,
                skipped=record.skipped + skipped, missed=record.missed + firing.missed,
                dropped=record.dropped + dropped,
            )  # fmt: skip
        if firing.expires is not None:
            record = replace(record, expires=firing.expires)
        return record, Fired(0, fired=fired, skipped=skipped, dropped=dropped, known=known, ids=tuple(ids))

    def _judge(self, queue: Queue, record: ScheduleRecord, tick: TickJob, firing: Firing) -> str:
        """Return the outcome of a tick; cancel the last job if the overlap asks for it."""
        old = queue.jobs.get(tick.job.id)
        if old is not None and not (old.finish and self._expired(old.finish)):
            return "known"
        group = tick.job.group
        if firing.overlap == "queue" and group is not None:
            self._promote(queue)
            if len(self._jobs_of_group(queue, group)) >= firing.room:
                return "dropped"
        last = queue.jobs.get(record.last_id) if record.last_id is not None else None
        if last is not None and last.finish is None:
            if firing.overlap == "skip":
                return "skipped"
            if firing.overlap in CANCELS:
                self.cancel(record.queue, [last.id], CANCELS[firing.overlap], firing.cancel_ttl)
        return "fired"

    def drop_schedule(self, name: str, schedule: str, version: int) -> bool:
        record = self.get_schedule(name, schedule)
        if record is None or record.version != version:
            return False
        del self.all[name].schedules[schedule]
        return True

    def schedules(self, name: str, after: str | None = None, limit: int = 100) -> SchedulePage:
        queue = self.all.get(name)
        records = [r for r in queue.schedules.values() if not self._forgotten(r)] if queue else []
        records.sort(key=lambda r: r.name.encode())
        rest = [r for r in records if after is None or r.name.encode() > after.encode()]
        page = rest[:limit]
        return SchedulePage(page, page[-1].name if len(rest) > limit else None)

    def purge_schedules(self, queue: Queue) -> int:
        """Delete the schedules whose time is over, and return how many there were."""
        over = [name for name, record in queue.schedules.items() if self._forgotten(record)]
        for name in over:
            del queue.schedules[name]
        return len(over)

    def has_schedules(self, queue: Queue) -> bool:
        return any(not self._forgotten(record) for record in queue.schedules.values())

    def _forgotten(self, record: ScheduleRecord) -> bool:
        return record.expires is not None and record.expires <= self.now

    def _next_version(self, version: int) -> int:
        return max(version + 1, self.now)
