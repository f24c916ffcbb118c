"""Recorder of the calls that change limits and schedules, and that fire ticks.

Each is recorded before it is sent, because it may take effect without an answer. A firing is recorded with the cursor
and the times of the schedule that it was decided from, which the answers to `due` and `get_schedule` have.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import msgspec

from chaos.log import Log
from penstock.model.limit import Rule
from penstock.model.schedule import WhenSpec
from penstock.model.schedule_settings import ScheduleSettings
from penstock.storage.limiting import Scope
from penstock.storage.scheduling import DueSchedules, Fired, Firing, ScheduleRecord, TickJob

__all__ = ["NOT_RECORDED_SETTINGS", "RECORDED_SETTINGS", "record_settings"]

#: The recorded methods of `Limiting` and `Scheduling`; the answers to `due` and `get_schedule` are read only.
RECORDED_SETTINGS = frozenset({"set_limit", "set_schedule", "fire", "drop_schedule", "due", "get_schedule"})
NOT_RECORDED_SETTINGS = frozenset({"get_limit", "limits", "schedules"})

#: Numbers of the requests of this process, which has several storages.
_numbers = itertools.count(1)

_decode = msgspec.json.Decoder().decode


def record_settings(storage: Any, log: Log) -> None:
    """Record the calls of a storage that are about limits and schedules, if it has them."""
    recorder = SettingsRecorder(storage, log)
    for verb in RECORDED_SETTINGS:
        if hasattr(storage, verb):
            setattr(storage, verb, getattr(recorder, verb))


class SettingsRecorder:
    """Methods that call those of a storage and record the calls."""

    def __init__(self, storage: Any, log: Log) -> None:
        self._called = {verb: getattr(storage, verb, None) for verb in RECORDED_SETTINGS}
        self._log = log
        #: By queue and name, the schedule as it was read last: version, cursor and times.
        self._read: dict[tuple[str, str], tuple[int, int, str]] = {}

    async def _send(self, verb: str, request: dict[str, Any], *args: Any) -> Any:
        """Record a request, send it, and record an error; returns its number and the answer."""
        number = next(_numbers)
        self._log.write(verb, s=number, **request)
        call: Any = self._called[verb]
        try:
            return number, await call(*args)
        except BaseException as error:
            self._log.write(f"{verb}_answer", s=number, error=type(error).__name__)
            raise

    async def set_limit(self, scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        about = {"scope": [scope.kind, scope.name, scope.group], "rule": encode_rule(rule), "v": version}
        number, answer = await self._send("set_limit", about, scope, rule, settings, version)
        self._log.write("set_limit_answer", s=number, v=answer)
        return answer

    async def set_schedule(self, record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        settings = ScheduleSettings.decode(record.spec)
        about = {
            "q": record.queue, "name": record.name, "v": version,
            "start": self._start(record.queue, record.name, version), "cursor": record.cursor,
            "when": encode_when(settings.spec.when), "fires": settings.fires,
            "firing": None if firing is None else self._encode_firing(firing, version),
        }  # fmt: skip
        number, answer = await self._send("set_schedule", about, record, version, firing)
        self._log.write("set_schedule_answer", s=number, v=answer)
        return answer

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        about = {"firings": [self._encode_firing(each, each.version) for each in firings]}
        number, answers = await self._send("fire", about, firings)
        self._log.write("fire_answer", s=number, fired=[encode_fired(each) for each in answers])
        return answers

    async def drop_schedule(self, queue: str, name: str, version: int) -> bool:
        about = {"q": queue, "name": name, "v": version}
        number, answer = await self._send("drop_schedule", about, queue, name, version)
        self._log.write("drop_schedule_answer", s=number, dropped=answer)
        return answer

    async def due(self, queues: Sequence[str], worker: str) -> DueSchedules:
        call: Any = self._called["due"]
        answer: DueSchedules = await call(queues, worker)
        for record in answer.schedules:
            self._note(record)
        return answer

    async def get_schedule(self, queue: str, name: str) -> ScheduleRecord | None:
        call: Any = self._called["get_schedule"]
        record: ScheduleRecord | None = await call(queue, name)
        if record is not None:
            self._note(record)
        return record

    def _note(self, record: ScheduleRecord) -> None:
        when = encode_when(ScheduleSettings.decode(record.spec).spec.when)
        self._read[record.queue, record.name] = record.version, record.cursor, when

    def _start(self, queue: str, name: str, version: int) -> int | None:
        """Return the cursor of a schedule at this version; None if another version was read last."""
        known = self._read.get((queue, name))
        return known[1] if known is not None and known[0] == version else None

    def _encode_firing(self, firing: Firing, version: int) -> dict[str, Any]:
        key = (firing.queue, firing.name)
        return {
            "q": firing.queue, "name": firing.name, "v": version, "start": self._start(*key, version),
            "when": self._read[key][2] if key in self._read else None, "missed": firing.missed,
            "ticks": [encode_tick(each) for each in firing.ticks], "overlap": firing.overlap, "cursor": firing.cursor,
            "manual": firing.manual,
        }  # fmt: skip


def encode_rule(rule: Rule | None) -> list[Any] | None:
    """Return concurrency, step in microseconds, burst, and whether the rate counts costs."""
    return None if rule is None else [rule.concurrency, rule.step_us, rule.burst, rule.by_cost]


def encode_when(when: WhenSpec) -> str:
    """Return the times of a schedule as text: "every 2", or a cron expression."""
    return when.cron if when.cron is not None else f"every {when.every}"


def encode_tick(tick: TickJob) -> list[Any]:
    """Return the nominal time (ms) of a tick, and id, behaviour, group and cost of its job."""
    payload = _decode(tick.job.payload)
    return [tick.at, tick.job.id, payload.get("behaviour"), tick.job.group, tick.job.cost]


def encode_fired(fired: Fired) -> list[Any]:
    """Return version, staleness, the numbers of fired, skipped, dropped and known ticks, and the ids of the jobs."""
    return [fired.version, fired.stale, fired.fired, fired.skipped, fired.dropped, fired.known, list(fired.ids)]
