"""The schedules that a worker declares, and those without a live declarer, which it retires."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.host import AppHost
from penstock.model.printing import escape_controls, quote_name
from penstock.model.schedule_settings import DeclaredSchedule, ScheduleSettings
from penstock.model.settings import Declarer, holder
from penstock.storage.base import MAX_BATCH
from penstock.storage.scheduling import Firing, ScheduleRecord, Scheduling
from penstock.ticking import (
    changed_record,
    create_schedule,
    encode_template,
    expiry_of,
    firing_before_change,
    nominal_times,
    scheduling_of,
)

__all__ = ["DeclaredSchedules"]

log = logging.getLogger("penstock.schedules")

#: How long (seconds) a declarer is absent until its schedule is retired: others that declare it look more often.
RETIRE_AFTER = 60.0
#: How often (seconds) all schedules of the queues are searched for those that other code declares.
SEARCH = 600.0
#: How often a change is tried at one look while others change the same schedule.
TRIES = 10

Key = tuple[str, str]


class DeclaredSchedules:
    """Declares the schedules of a worker's code for its queues, and retires those without a live declarer."""

    def __init__(self, host: AppHost, queues: Sequence[str], foreign: set[Key]) -> None:
        self._host = host
        self._queues = queues
        self._mine = {key: each for key, each in host.declared_schedules.items() if key[0] in queues}
        #: The schedules that other code declares, and since when (monotonic) their declarer is absent.
        self._foreign = foreign
        self._absent: dict[Key, float] = {}
        self._next_search = 0.0
        #: Whether a queue of the worker has a schedule.
        self.noticed = False
        self._payloads: dict[Key, bytes] = {}
        #: The schedules that could not be declared.
        self._refused: set[Key] = set()

    @property
    def active(self) -> bool:
        """Whether code declares a schedule, or a queue has one."""
        return bool(self._mine) or self.noticed

    async def look(self, me: Declarer, live: Mapping[str, int]) -> None:
        """Write the declarations that this worker holds, and retire schedules whose declarer is gone."""
        storage = scheduling_of(self._host.storage)
        if storage is None:
            return
        for key, declared in self._mine.items():
            try:
                await self._declare(storage, declared, me, live)
            except ValueError as error:  # of its record, or of a time zone: neither may stop the worker
                self._log_refused(key, error)
        now = asyncio.get_running_loop().time()
        if now >= self._next_search:
            self._next_search = now + SEARCH
            await self._search(storage)
        for key in sorted(self._foreign):
            await self._look_at(storage, key, live, now)

    # declare ----------------------------------------------------------------------------------------

    async def _declare(
        self, storage: Scheduling, declared: DeclaredSchedule, me: Declarer, live: Mapping[str, int]
    ) -> None:
        for _ in range(TRIES):
            record = await storage.get_schedule(declared.queue, declared.name)
            if record is None:
                written = await self._create(storage, declared, me)
            else:
                old = ScheduleSettings.decode(record.spec)
                known = old.declarer if old.retired is None else None
                if known == me or holder(known, me, live) != me:
                    return
                written = await self._replace(storage, record, old, self._declaration(declared, me))
            if written:
                return

    def _log_refused(self, key: Key, error: ValueError) -> None:
        if key not in self._refused:
            self._refused.add(key)
            text = "schedule %s of queue %s cannot be declared: %s"
            log.error(text, quote_name(key[1]), quote_name(key[0]), escape_controls(str(error)))

    def _declaration(self, declared: DeclaredSchedule, me: Declarer) -> dict[str, Any]:
        """Return the fields of `ScheduleSettings` that a declaration sets."""
        key = declared.queue, declared.name
        if declared.function is None and key not in self._payloads:
            self._payloads[key] = encode_template(self._host, *key, declared.payload)
        fields = {**declared.fields, "payload": self._payloads.get(key)}
        return {
            "declared": fields, "function": declared.function, "by": me.worker, "started": me.started, "retired": None,
        }  # fmt: skip

    async def _create(self, storage: Scheduling, declared: DeclaredSchedule, me: Declarer) -> bool:
        settings = ScheduleSettings(**self._declaration(declared, me))
        queue, name, at_once = declared.queue, declared.name, declared.schedule.at_once
        now = await self._host.storage.time()
        return await create_schedule(self._host, storage, queue, name, settings, now, at_once=at_once)

    async def _replace(
        self, storage: Scheduling, record: ScheduleRecord, old: ScheduleSettings, declaration: dict[str, Any]
    ) -> bool:
        """Write a declaration over a record as it was read; False if that has changed since, or must be read again.

        If it ticks at other times from now on, the ticks that are due by the old ones are decided in the same step.
        """
        new = replace(old, **declaration)
        now = await self._host.storage.time()
        firing: Firing | None = None
        if old.fires and nominal_times(old) != nominal_times(new):
            firing = firing_before_change(self._host, record, old, now)
            if firing.next is not None and firing.next <= now:  # more are due than one step decides
                await storage.fire([firing])
                return False
        changed = changed_record(record, old, new, now, firing)
        if (await storage.set_schedule(changed, record.version, firing)) is None:
            return False
        if (old.declared, old.function, old.retired) != (new.declared, new.function, new.retired):
            self._host.emit("schedule_changed", queue=record.queue, id=record.name)
        return True

    # retire -----------------------------------------------------------------------------------------

    async def _search(self, storage: Scheduling) -> None:
        """Find the schedules of the queues that other code declares."""
        for queue in self._queues:
            cursor: str | None = None
            while True:
                page = await storage.schedules(queue, cursor, MAX_BATCH)
                self._foreign.update(
                    key
                    for record in page.schedules
                    if (key := (queue, record.name)) not in self._mine and is_declared(record)
                )
                cursor = page.cursor
                if cursor is None:
                    break

    async def _look_at(self, storage: Scheduling, key: Key, live: Mapping[str, int], now: float) -> None:
        """Retire a schedule that other code declares if its declarer has been absent for long enough."""
        record = await storage.get_schedule(*key)
        settings = None if record is None or not is_declared(record) else ScheduleSettings.decode(record.spec)
        if record is None or settings is None or settings.by in live:
            self._absent.pop(key, None)
            if settings is None:
                self._foreign.discard(key)
            return
        if now - self._absent.setdefault(key, now) < RETIRE_AFTER:
            return
        at = await self._host.storage.time()
        retired = replace(settings, retired=at)
        changed = replace(record, spec=retired.encode(), next=None, expires=expiry_of(retired, None, at))
        if (await storage.set_schedule(changed, record.version)) is not None:
            self._foreign.discard(key)
            self._absent.pop(key, None)
            log.warning(
                "schedule %s of queue %s is retired: no live worker declares it", quote_name(key[1]), quote_name(key[0])
            )
            self._host.emit("schedule_changed", queue=key[0], id=key[1])


def is_declared(record: ScheduleRecord) -> bool:
    """Return whether code declares a stored schedule, and it is not retired."""
    try:
        settings = ScheduleSettings.decode(record.spec)
    except ValueError:
        return False
    return settings.declared is not None and settings.retired is None
