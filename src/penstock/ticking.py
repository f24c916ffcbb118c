"""The ticks of schedules: workers and reservations decide those that are due, and put their jobs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from msgspec.structs import replace

from penstock.errors import InvalidPayload, JobError, NotSupported
from penstock.host import AppHost
from penstock.model.clock import as_datetime
from penstock.model.headers import decode_headers, encode_headers
from penstock.model.job import NewJob
from penstock.model.printing import escape_controls, quote_name
from penstock.model.schedule import ScheduleSpec
from penstock.model.schedule_decision import Decision, decide
from penstock.model.schedule_settings import RETIRED_MS, ScheduleSettings
from penstock.model.serde import decode, encode
from penstock.model.tick import Tick, jitter_ms, tick_headers, tick_id, trigger_id
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Storage
from penstock.storage.scheduling import Fired, Firing, ScheduleRecord, Scheduling, TickJob

__all__ = [
    "MAX_FIRINGS",
    "PayloadFunction",
    "TickFirer",
    "changed_record",
    "create_schedule",
    "due_firing",
    "emit_fired",
    "encode_template",
    "expiry_of",
    "firing_before_change",
    "manual_tick",
    "missed_firing",
    "need_scheduling",
    "nominal_times",
    "payload_function",
    "scheduling_of",
    "tick_job",
]

log = logging.getLogger("penstock.schedules")

#: How many schedules are fired in one call, and as many of one queue are due at most in one answer.
MAX_FIRINGS = 100
#: After how long (ms) ticks that this process cannot fire are looked at again.
LEFT_MS = 1000
#: The most events of missed ticks of one decision, those of the newest.
MAX_MISSED_EVENTS = 100


#: Computes the payload of a tick.
PayloadFunction = Callable[[Tick], Any]


def scheduling_of(storage: Storage) -> Scheduling | None:
    """Return the storage if it keeps schedules, else None."""
    found: Any = storage
    return cast("Scheduling", found) if hasattr(found, "set_schedule") and hasattr(found, "fire") else None


def need_scheduling(storage: Storage) -> Scheduling:
    """Return the storage if it keeps schedules; raises `NotSupported` if it does not."""
    if (found := scheduling_of(storage)) is None:
        raise NotSupported(f"{type(storage).__name__} keeps no schedules")
    return found


# the jobs of ticks ------------------------------------------------------------------------------------


def encode_template(host: AppHost, queue: str, name: str, payload: Any) -> bytes:
    """Encode the payload of a schedule; raises `InvalidPayload` for one that is too large or cannot be encoded.

    A serde that is bound to each job is bound to the name of the schedule here; see `tick_job`.
    """
    data = encode(host.codec(queue).payload_for(name), payload, "payload")
    if len(data) > host.max_payload:
        raise InvalidPayload(f"payload is {len(data)} bytes, more than max_payload ({host.max_payload})")
    return data


def tick_job(
    host: AppHost,
    queue: str,
    spec: ScheduleSpec,
    tick: Tick,
    nominal: int,
    payload: Callable[[Tick], Any] | None = None,
) -> NewJob:
    """Return the job of a tick, with the template's payload or one that a function computes."""
    name = tick.schedule
    id = trigger_id(name, nominal) if tick.manual else tick_id(name, nominal)
    codec = host.codec(queue)
    if payload is not None:
        data = encode(codec.payload_for(id), payload(tick), "payload")
    elif codec.payload_of_job is None:
        data = spec.payload or b""
    else:
        data = encode(codec.payload_for(id), decode(codec.payload_for(name), spec.payload or b""), "payload")
    if len(data) > host.max_payload:
        raise InvalidPayload(f"payload is {len(data)} bytes, more than max_payload ({host.max_payload})")
    return NewJob(
        queue=queue,
        id=id,
        payload=data,
        run_at=nominal if tick.manual else nominal + jitter_ms(queue, name, nominal, spec.jitter),
        priority=spec.priority,
        group=spec.group_of(name),
        headers=encode_headers({**decode_headers(spec.headers), **tick_headers(tick)}),
        bounds=spec.bounds,
        cost=spec.cost,
    )


def payload_function(host: AppHost, record: ScheduleRecord, settings: ScheduleSettings) -> PayloadFunction | None:
    """Return the function that computes the payload, None if it is a value.

    Raises `LookupError` if the code of this process does not declare the schedule as it is stored.
    """
    if settings.payload_function is None:
        return None
    declared = host.declared_schedules.get((record.queue, record.name))
    if declared is None or not declared.is_held_by(settings):
        raise LookupError(
            f"its payload is computed by {settings.payload_function}, which this process does not declare"
        )
    return declared.payload


def due_firing(host: AppHost, record: ScheduleRecord, settings: ScheduleSettings, now: int) -> tuple[Firing, Decision]:
    """Decide the due ticks of a schedule; returns the firing and the decision behind it.

    Ticks whose payloads would be more than `MAX_BYTES` together are left to the next decision, in which they are due.
    Raises `ValueError` if the nominal times cannot be computed here, `LookupError` if the payload cannot.
    """
    spec = settings.spec
    decision = decide(spec, record.cursor, now)
    function = payload_function(host, record, settings) if decision.fires else None
    ticks: list[TickJob] = []
    previous, room = record.last_at, MAX_BYTES
    for nominal in decision.fires:
        if room <= 0:
            decision = decision.first(len(ticks))
            break
        before = None if previous is None else as_datetime(previous)
        tick = Tick(record.name, as_datetime(nominal), before, tz=spec.tz)
        ticks.append(TickJob(nominal, tick_job(host, record.queue, spec, tick, nominal, function)))
        previous, room = nominal, room - len(ticks[-1].job.payload)
    firing = Firing(
        queue=record.queue, name=record.name, version=record.version, ticks=tuple(ticks), overlap=spec.overlap,
        missed=len(decision.missed), cursor=decision.cursor, next=decision.next,
        cancel_ttl=host.options(record.queue).keep_ms, expires=expiry_of(settings, decision.next, now),
    )  # fmt: skip
    return firing, decision


def manual_tick(
    host: AppHost,
    record: ScheduleRecord,
    settings: ScheduleSettings,
    now: int,
    payload: PayloadFunction | None = None,
) -> TickJob:
    """Return the job of a tick by hand at this time; `payload` replaces that of the schedule."""
    previous = None if record.last_at is None else as_datetime(record.last_at)
    tick = Tick(record.name, as_datetime(now), previous, manual=True, tz=settings.spec.tz)
    function = payload or payload_function(host, record, settings)
    return TickJob(now, tick_job(host, record.queue, settings.spec, tick, now, function))


def expiry_of(settings: ScheduleSettings, next: int | None, now: int) -> int | None:
    """Return when a record is forgotten: 7 days after it retired, or after the end of one made at run time."""
    if settings.retired is not None:
        return settings.retired + RETIRED_MS
    over = next is None and settings.paused is None and settings.declared is None
    return now + RETIRED_MS if over else None


def missed_firing(record: ScheduleRecord, settings: ScheduleSettings, now: int) -> Firing:
    """Return a firing in which all due ticks of a schedule are missed."""
    decision = decide(settings.spec, record.cursor, now)
    return Firing(
        queue=record.queue, name=record.name, version=record.version, missed=len(decision.missed) + len(decision.fires),
        cursor=decision.cursor, next=decision.next,
    )  # fmt: skip


def firing_before_change(host: AppHost, record: ScheduleRecord, old: ScheduleSettings, now: int) -> Firing:
    """Return the firing of the ticks that are due before a change of the settings.

    They are missed if the code that computes their payload is not here. If the `next` tick is due too, the caller fires
    these, and reads the record again before it makes the change.
    """
    try:
        return due_firing(host, record, old, now)[0]
    except LookupError:
        return missed_firing(record, old, now)


async def create_schedule(
    host: AppHost, storage: Scheduling, queue: str, name: str, settings: ScheduleSettings, now: int, *, at_once: bool
) -> bool:
    """Store a new schedule, with one job of it if `at_once`, and emit the events; False if there is one by now."""
    next = settings.next_after(now)
    expires = expiry_of(settings, next, now)
    record = ScheduleRecord(queue=queue, name=name, spec=settings.encode(), cursor=now, next=next, expires=expires)
    firing: Firing | None = None
    if at_once:
        tick = manual_tick(host, record, settings, now)
        firing = Firing(queue=queue, name=name, version=0, ticks=(tick,), overlap="allow", manual=True)
    if (await storage.set_schedule(record, 0, firing)) is None:
        return False
    host.emit("schedule_changed", queue=queue, id=name)
    if firing is not None:
        host.emit("enqueued", queue=queue, id=firing.ticks[0].job.id)
    return True


def changed_record(
    record: ScheduleRecord,
    old: ScheduleSettings,
    new: ScheduleSettings,
    now: int,
    firing: Firing | None,
    catch_up: bool = False,
) -> ScheduleRecord:
    """Return a record with other settings, after the firing of the ticks that were due by the old ones.

    One that is resumed without `catch_up`, or that ticks at other times, knows the ticks after now; any other goes on
    at its cursor, also when it is declared again after it was retired.
    """
    cursor = record.cursor if firing is None else firing.cursor
    resumed = old.paused is not None and new.paused is None and not catch_up
    if resumed or nominal_times(old) != nominal_times(new):
        cursor = max(cursor, now)
    next = new.next_after(cursor)
    return replace(record, spec=new.encode(), cursor=cursor, next=next, expires=expiry_of(new, next, now))


def nominal_times(settings: ScheduleSettings) -> tuple[object, ...]:
    """Return the fields that the nominal times follow from."""
    return settings.spec.when, settings.spec.start


# firing -------------------------------------------------------------------------------------------------


class TickFirer:
    """Fires the due ticks of queues, for a worker or for reservations.

    A schedule that this process cannot fire is left to others: one that other code declares, or in a time zone that
    is not known here. The reason is logged once.
    """

    def __init__(self, host: AppHost, worker: str) -> None:
        self._host = host
        self._worker = worker
        #: Why schedules were left to others, by queue and name.
        self._left: dict[tuple[str, str], str] = {}
        #: The due schedules that other code declares, as queue and name.
        self.foreign: set[tuple[str, str]] = set()
        #: The number of schedules whose ticks were decided here.
        self.fired = 0
        #: The number of answers of the storage.
        self.rounds = 0

    async def fire_due(self, queues: Sequence[str], *, stays: bool = False) -> int | None:
        """Fire all ticks that are due; returns when (ms) to look again, None if no schedule has a next tick.

        A caller that `stays` may hold the alarm of a queue: it looks again at that time, and others rely on it.
        """
        storage = scheduling_of(self._host.storage)
        if storage is None or not queues:
            return None
        while True:
            answer = await storage.due(queues, self._worker if stays else "")
            self.rounds += 1
            if not answer.schedules:
                return answer.look_at
            # Records come with the time of the call; on a Cluster it may be that of a node whose clock is behind.
            now = max([answer.look_at or 0, *(record.next or 0 for record in answer.schedules)])
            fired = await self._fire(storage, answer.schedules, now)
            if fired < len(answer.schedules) and not self._full(answer.schedules, fired):
                later = now + LEFT_MS
                return later if answer.look_at is None else max(answer.look_at, later)

    def _full(self, records: Sequence[ScheduleRecord], fired: int) -> bool:
        """Return whether a queue may have further due schedules, and this look made room for them."""
        return fired > 0 and max(Counter(record.queue for record in records).values()) >= MAX_FIRINGS

    async def _fire(self, storage: Scheduling, records: Sequence[ScheduleRecord], now: int) -> int:
        """Fire the schedules that this process may fire; returns their number, those of a stale version included."""
        pairs = [found for record in records if (found := self._decided(record, now)) is not None]
        for part in parts(pairs):
            answers = await storage.fire([firing for firing, _ in part])
            self.rounds += 1
            for (firing, decision), answer in zip(part, answers, strict=True):
                emit_fired(self._host, firing, answer, decision, self._worker)
        self.fired += len(pairs)
        return len(pairs)

    def _decided(self, record: ScheduleRecord, now: int) -> tuple[Firing, Decision] | None:
        """Return the firing of a due schedule, None if it is left to others."""
        try:
            settings = ScheduleSettings.decode(record.spec)
            if settings.declared is not None and (record.queue, record.name) not in self._host.declared_schedules:
                self.foreign.add((record.queue, record.name))
                return None
            return due_firing(self._host, record, settings, now)
        except LookupError:
            return None
        except Exception as error:
            self._log_left(record, error)
            return None

    def _log_left(self, record: ScheduleRecord, error: Exception) -> None:
        key, why = (record.queue, record.name), escape_controls(str(error))
        if self._left.get(key) == why:
            return
        self._left[key] = why
        name, queue = quote_name(record.name), quote_name(record.queue)
        log.warning("schedule %s of queue %s is left to other workers: %s", name, queue, why)
        if not isinstance(error, ValueError):
            self._host.emit("error", queue=record.queue, error=JobError.from_exception(error), worker=self._worker)


def parts(pairs: Sequence[tuple[Firing, Decision]]) -> Iterator[list[tuple[Firing, Decision]]]:
    """Yield firings in parts of at most `MAX_FIRINGS` schedules and about `MAX_BATCH` jobs."""
    part: list[tuple[Firing, Decision]] = []
    jobs = 0
    for pair in pairs:
        if part and (len(part) == MAX_FIRINGS or jobs + len(pair[0].ticks) > MAX_BATCH):
            yield part
            part, jobs = [], 0
        part.append(pair)
        jobs += len(pair[0].ticks)
    if part:
        yield part


def emit_fired(
    host: AppHost, firing: Firing, fired: Fired, decision: Decision | None = None, worker: str | None = None
) -> None:
    """Emit the events of a firing: `enqueued`, and of ticks without a job `tick_skipped`, `_dropped` and `_missed`."""
    if fired.stale:
        return
    put = set(fired.ids)
    for id in fired.ids:
        host.emit("enqueued", queue=firing.queue, id=id)
    others = [tick.job.id for tick in firing.ticks if tick.job.id not in put]
    without_job = fired.skipped + fired.dropped
    for at, id in enumerate(others[len(others) - without_job :] if without_job else ()):
        name = "tick_skipped" if at < fired.skipped else "tick_dropped"
        host.emit(name, queue=firing.queue, id=id, worker=worker)
    for nominal in decision.missed[-MAX_MISSED_EVENTS:] if decision is not None else ():
        host.emit("tick_missed", queue=firing.queue, id=tick_id(firing.name, nominal), worker=worker)
