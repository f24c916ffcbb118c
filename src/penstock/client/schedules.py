"""The schedules of one queue at run time: create, change, pause, trigger, remove and list them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from itertools import islice, takewhile
from typing import Any, TypeAlias, Unpack

from msgspec import UNSET
from msgspec.structs import replace

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Enqueued, Page
from penstock.client.schedule_info import ScheduleInfo, schedule_info
from penstock.client.schedule_options import ScheduleChanges, ScheduleOptions, changed_fields, stored_fields
from penstock.errors import PenstockError, QueueFull, ScheduleNotFound
from penstock.host import AppHost
from penstock.model.checks import check_choice, check_flag, check_page, check_text, check_whole
from penstock.model.clock import Moment, as_datetime, milliseconds
from penstock.model.job import State
from penstock.model.schedule import OVERLAPS, Overlap, Schedule, When
from penstock.model.schedule_settings import ScheduleSettings
from penstock.model.tick import Tick, check_schedule_name
from penstock.storage.base import MAX_BATCH, MAX_BYTES, PutStatus
from penstock.storage.scheduling import Firing, ScheduleRecord, Scheduling, TickJob
from penstock.ticking import (
    PayloadFunction,
    changed_record,
    create_schedule,
    emit_fired,
    firing_before_change,
    manual_tick,
    need_scheduling,
    payload_function,
    tick_job,
)

__all__ = ["Schedules"]

#: How often a change is tried while others change the same schedule.
TRIES = 100
#: The most ticks that `backfill` puts, how many in one step, and the most that `next` returns.
MAX_BACKFILL, BACKFILL_STEP, MAX_NEXT = 10_000, 100, 1_000

#: The most bytes of the note of a pause.
MAX_NOTE = 4_096

#: The types of lists, as `Schedules.list` hides the name.
Times: TypeAlias = list[int]
Moments: TypeAlias = list[datetime]

#: Returns the settings of a schedule after a change, None for no change; gets those before it, and the time (ms).
Change = Callable[[ScheduleSettings, int], ScheduleSettings | None]


@refused_in_plain_handlers(lambda schedules: schedules._host.driven)
class Schedules:
    """The schedules of one queue, as `queue.schedules`: those that code declares, and those that are made here."""

    def __init__(self, host: AppHost, queue: str) -> None:
        self._host = host
        self._queue = queue

    def __repr__(self) -> str:
        return f"<Schedules of {self._queue!r}>"

    # reads ------------------------------------------------------------------------------------------

    async def get(self, name: str) -> ScheduleInfo | None:
        """Return a schedule, or None when there is none with this name."""
        record = await (await self._storage()).get_schedule(self._queue, check_schedule_name(name))
        return None if record is None else self._info(record)

    async def list(self, after: str | None = None, limit: int = 100) -> Page[ScheduleInfo]:
        """Return a page of the queue's schedules, by name; `after` is the cursor of the page before."""
        check_page(after, limit, most=MAX_BATCH)
        page = await (await self._storage()).schedules(self._queue, after, limit)
        found: Page[ScheduleInfo] = Page((), page.cursor)
        for record in page.schedules:
            try:
                found.append(self._info(record))
            except ValueError:
                continue  # newer software wrote it
        return found

    async def next(self, name: str, count: int = 10) -> Moments:
        """Return the next nominal times of a schedule, at most `count`; a paused one has them too."""
        check_whole(count, "count", least=1, most=MAX_NEXT)
        storage = await self._storage()
        record = await self._get(storage, name)
        now = await (await self._host.opened()).time()
        spec = ScheduleSettings.decode(record.spec).spec
        return [as_datetime(nominal) for nominal in islice(spec.following(now), count)]

    # changes ----------------------------------------------------------------------------------------

    async def put(self, name: str, when: When, **options: Unpack[ScheduleOptions]) -> ScheduleInfo:
        """Create a schedule or replace the one of this name, with the options of `Schedule`.

        Of one that code declares every field is changed, until `reset`. A pause stays.
        """
        schedule = Schedule(when, name=check_schedule_name(name), **options)
        fields = stored_fields(self._host, self._queue, name, schedule)

        def change(settings: ScheduleSettings, now: int) -> ScheduleSettings:
            if settings.retired is not None:
                return ScheduleSettings(changed=fields, paused=settings.paused, note=settings.note)
            return replace(settings, changed=fields)

        storage = await self._storage()
        for _ in range(TRIES):
            record = await storage.get_schedule(self._queue, name)
            if record is not None:
                done = await self._try(storage, record, change)
            else:
                done = await self._create(storage, name, ScheduleSettings(changed=fields), schedule.at_once)
            if done is not None:
                return self._info(done)
        raise self._busy(name)

    async def edit(self, name: str, **changes: Unpack[ScheduleChanges]) -> ScheduleInfo:
        """Change some options of a schedule; ticks that are due before belong to the old ones.

        They win over those that code declares, until `reset`. Bounds of its jobs (`timeout`, `max_retries`, …) are
        changed together with those that are in force.
        """

        def change(settings: ScheduleSettings, now: int) -> ScheduleSettings:
            fields = changed_fields(self._host, self._queue, name, settings.spec, changes)
            return replace(settings, changed={**settings.changed, **fields})

        return self._info(await self._change(name, change))

    async def pause(self, name: str, note: str = "") -> bool:
        """Stop the ticks of a schedule until `resume`, not the jobs that it has put; False if it was paused already."""
        check_text(note, "note", MAX_NOTE)
        paused = False

        def change(settings: ScheduleSettings, now: int) -> ScheduleSettings | None:
            nonlocal paused
            paused = settings.paused is None
            if settings.paused is not None and settings.note == note:
                return None
            return replace(settings, paused=now if paused else settings.paused, note=note)

        await self._change(name, change)
        return paused

    async def resume(self, name: str, catch_up: bool = False) -> bool:
        """Let a paused schedule tick again from now on; False if it was not paused.

        Ticks that fell into the pause are not made up for, unless with `catch_up`: then they are late, and its options
        `grace` and `catch_up` decide.
        """
        check_flag(catch_up, "catch_up")
        resumed = False

        def change(settings: ScheduleSettings, now: int) -> ScheduleSettings | None:
            nonlocal resumed
            resumed = settings.paused is not None
            return replace(settings, paused=None, note="") if resumed else None

        await self._change(name, change, catch_up)
        return resumed

    async def reset(self, name: str) -> ScheduleInfo:
        """Forget the changes of run time, so that the schedule is as code declares it; a pause stays."""

        def change(settings: ScheduleSettings, now: int) -> ScheduleSettings | None:
            if settings.declared is None:
                raise ValueError(f"{self._named(name)} is not declared in code: edit it, or remove it")
            return replace(settings, changed={}) if settings.changed else None

        return self._info(await self._change(name, change))

    async def remove(self, name: str) -> bool:
        """Delete a schedule; False when there is none with this name. The jobs that it has put stay.

        One that code declares is refused with a `ValueError`.
        """
        storage = await self._storage()
        for _ in range(TRIES):
            record = await storage.get_schedule(self._queue, check_schedule_name(name))
            if record is None:
                return False
            settings = ScheduleSettings.decode(record.spec)
            if settings.declared is not None and settings.retired is None:
                raise ValueError(f"{self._named(name)} is declared in code: pause it, or remove it from the code")
            if await storage.drop_schedule(self._queue, name, record.version):
                self._emit_changed(name)
                return True
        raise self._busy(name)

    # ticks by hand ----------------------------------------------------------------------------------

    async def trigger(self, name: str, *, payload: Any = UNSET, overlap: Overlap | None = None) -> Enqueued:
        """Put a job of a schedule now, also while it is paused; its counts and its next tick stay.

        `payload` and `overlap` replace those of the schedule. If the overlap "skip" lets no job start, the answer is
        falsy and has the id of the unfinished one.
        """
        if overlap is not None:
            check_choice(overlap, "overlap", OVERLAPS)
        given: PayloadFunction | None = None if payload is UNSET else lambda tick: payload
        storage, clock = await self._storage(), await self._host.opened()
        bump = 0
        for _ in range(TRIES):
            record = await self._get(storage, name)
            settings = ScheduleSettings.decode(record.spec)
            tick = self._manual(record, settings, await clock.time() + bump, given)
            firing = Firing(
                queue=self._queue, name=name, version=record.version, ticks=(tick,), manual=True,
                overlap=overlap or settings.spec.overlap, cancel_ttl=self._host.options(self._queue).keep_ms,
            )  # fmt: skip
            [fired] = await storage.fire([firing])
            if fired.known:
                bump += 1  # another trigger of the same millisecond has the id
            elif not fired.stale:
                if fired.dropped:
                    raise QueueFull(self._queue, firing.room, firing.room, 1)
                emit_fired(self._host, firing, fired)
                if fired.ids:
                    return Enqueued(id=tick.job.id, status=PutStatus.QUEUED, state=State.QUEUED)
                return await self._unfinished(record.last_id or "")
        raise self._busy(name)

    async def backfill(self, name: str, start: Moment, end: Moment) -> int:
        """Put the jobs of the ticks after `start` up to `end`, in order; returns how many were put.

        Ticks for which there is a job already are left out. At most 10,000, and none that is still to come.
        """
        first, last = milliseconds(start, "start"), milliseconds(end, "end")
        if last < first:
            raise ValueError("end must not be before start")
        storage, clock = await self._storage(), await self._host.opened()
        if last > await clock.time():
            raise ValueError("end must not be in the future: those ticks are still to come")
        count = stale = 0
        spec, times = b"", Times()
        while stale < TRIES:
            record = await self._get(storage, name)
            if record.spec != spec:
                spec, times = record.spec, nominal_times(record, first, last)
            if not times:
                return count
            firing = self._backfilling(record, times[:BACKFILL_STEP])
            [fired] = await storage.fire([firing])
            if fired.stale:
                stale += 1
                continue
            emit_fired(self._host, firing, fired)
            count += len(fired.ids)
            first, times, stale = firing.ticks[-1].at, times[len(firing.ticks) :], 0
        raise self._busy(name)

    # helpers ----------------------------------------------------------------------------------------

    async def _storage(self) -> Scheduling:
        return need_scheduling(await self._host.opened())

    async def _get(self, storage: Scheduling, name: str) -> ScheduleRecord:
        record = await storage.get_schedule(self._queue, check_schedule_name(name))
        if record is None:
            raise ScheduleNotFound(f"there is no schedule {name!r} in queue {self._queue!r}")
        return record

    def _named(self, name: str) -> str:
        return f"schedule {name!r} of queue {self._queue!r}"

    def _info(self, record: ScheduleRecord) -> ScheduleInfo:
        return schedule_info(self._host, record, ScheduleSettings.decode(record.spec))

    def _emit_changed(self, name: str) -> None:
        self._host.emit("schedule_changed", queue=self._queue, id=name)

    def _busy(self, name: str) -> PenstockError:
        return PenstockError(f"{self._named(name)} is changed by others all the time; try again")

    async def _create(
        self, storage: Scheduling, name: str, settings: ScheduleSettings, at_once: bool
    ) -> ScheduleRecord | None:
        """Create a schedule; None if it is there by now."""
        now = await (await self._host.opened()).time()
        made = await create_schedule(self._host, storage, self._queue, name, settings, now, at_once=at_once)
        return await self._get(storage, name) if made else None

    async def _change(self, name: str, change: Change, catch_up: bool = False) -> ScheduleRecord:
        """Change a schedule, again if another caller has changed it meanwhile; returns its record."""
        storage = await self._storage()
        for _ in range(TRIES):
            record = await self._get(storage, name)
            if (done := await self._try(storage, record, change, catch_up)) is not None:
                return done
        raise self._busy(name)

    async def _try(
        self, storage: Scheduling, record: ScheduleRecord, change: Change, catch_up: bool = False
    ) -> ScheduleRecord | None:
        """Change a schedule as it was read; None if it has changed since. Due ticks are decided in the same step."""
        old = ScheduleSettings.decode(record.spec)
        now = await (await self._host.opened()).time()
        if (new := change(old, now)) is None:
            return record
        firing: Firing | None = None
        if old.fires:
            firing = firing_before_change(self._host, record, old, now)
            if firing.next is not None and firing.next <= now:  # more are due than one step decides
                await storage.fire([firing])
                return None
        changed = changed_record(record, old, new, now, firing, catch_up)
        if (await storage.set_schedule(changed, record.version, firing)) is None:
            return None
        self._emit_changed(record.name)
        return await self._get(storage, record.name)

    def _manual(
        self, record: ScheduleRecord, settings: ScheduleSettings, now: int, payload: PayloadFunction | None
    ) -> TickJob:
        try:
            return manual_tick(self._host, record, settings, now, payload)
        except LookupError as error:
            raise PenstockError(f"{self._named(record.name)} cannot be triggered here: {error}; give payload") from None

    async def _unfinished(self, id: str) -> Enqueued:
        """Return the answer to a trigger that was skipped because of this job."""
        [job] = await (await self._host.opened()).get(self._queue, [id])
        return Enqueued(id=id, status=PutStatus.DUPLICATE, state=State.QUEUED if job is None else job.state)

    def _backfilling(self, record: ScheduleRecord, times: Times) -> Firing:
        """Return the firing by hand of these nominal times, or of the first of them if all would be too many bytes."""
        settings = ScheduleSettings.decode(record.spec)
        spec = settings.spec
        try:
            function = payload_function(self._host, record, settings)
        except LookupError as error:
            raise PenstockError(f"{self._named(record.name)} cannot be backfilled here: {error}") from None
        ticks: list[TickJob] = []
        previous, room = record.last_at, MAX_BYTES
        for nominal in times:
            if room <= 0:
                break
            before = as_datetime(previous) if previous is not None and previous < nominal else None
            tick = Tick(record.name, as_datetime(nominal), before, tz=spec.tz)
            ticks.append(TickJob(nominal, tick_job(self._host, self._queue, spec, tick, nominal, function)))
            previous, room = nominal, room - len(ticks[-1].job.payload)
        return Firing(
            queue=self._queue, name=record.name, version=record.version, ticks=tuple(ticks), overlap="allow",
            manual=True,
        )  # fmt: skip


def nominal_times(record: ScheduleRecord, first: int, last: int) -> Times:
    """Return the nominal times (ms) of a schedule after the first time up to the last; a `ValueError` if too many."""
    spec = ScheduleSettings.decode(record.spec).spec
    times = list(islice(takewhile(lambda nominal: nominal <= last, spec.following(first)), MAX_BACKFILL + 1))
    if len(times) > MAX_BACKFILL:
        raise ValueError(f"end is too late: there are more than {MAX_BACKFILL} ticks after start")
    return times
