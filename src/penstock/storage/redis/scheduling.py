"""The verbs of schedules of the Redis storage: the protocol `Scheduling`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.storage.base import MAX_BATCH, MAX_BYTES
from penstock.storage.redis.chunks import by_queue
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import Blobs, pack
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.schedule_codec import encode_fields, encode_firing, read_fired, read_schedule, size_of
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCall, ScriptCalls
from penstock.storage.scheduling import (
    HELP_MS,
    LOOK_MS,
    MAX_DUE,
    DueSchedules,
    Fired,
    Firing,
    SchedulePage,
    ScheduleRecord,
)

__all__ = ["RedisScheduling"]


class RedisScheduling:
    """The part of `RedisStorage` that keeps schedules; see `penstock.storage.scheduling` for each verb."""

    _connection: Connection
    _keys: Keys
    _calls: ScriptCalls
    _schema: Schema
    _families: ClusterFamilies

    async def set_schedule(self, record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        """Create or replace a schedule if its version is still this one, 0 for none; returns the new version."""
        await self._schema.write(self._connection)
        await self._families.add(record.queue, created=version == 0)
        blobs = Blobs()
        ticks = b"" if firing is None else pack(encode_firing(firing, blobs))
        args = self._keys.cancel(""), record.name, version, pack(encode_fields(record)), ticks, record.spec, *blobs.all
        answer = await self._calls.run_once("set_schedule", record.queue, *args)
        if version == 0:  # the family may have been dropped from the list meanwhile, because it had no queue
            await self._families.add(record.queue, created=True)
        return answer or None

    async def get_schedule(self, queue: str, name: str) -> ScheduleRecord | None:
        """Return a schedule, or None."""
        found = await self._calls.run("get_schedule", queue, name)
        return None if found is None else read_schedule(queue, name.encode(), found)

    async def due(self, queues: Sequence[str], worker: str) -> DueSchedules:
        """Return the schedules whose next tick is due, and when this worker must ask again."""
        names = list(dict.fromkeys(queues))
        calls = [self._calls.build("due", name, (worker, MAX_DUE, HELP_MS, LOOK_MS)) for name in names]
        answers = await self._connection.run_many(calls, repeat=True) if calls else []
        found: list[ScheduleRecord] = []
        looks: list[int] = []
        for name, (look, *flat) in zip(names, answers, strict=True):
            read = _read_flat(name, flat)
            found += read
            if look is not None:
                looks.append(look + LOOK_MS if flat and not read else look)
        return DueSchedules(found, min(looks, default=None))

    async def fire(self, firings: Sequence[Firing]) -> list[Fired]:
        """Put the jobs of ticks and move the cursors, each schedule in one step, if its version is unchanged."""
        answers: dict[int, Fired] = {}
        calls: list[ScriptCall] = []
        parts: list[list[int]] = []
        for queue, indexes in by_queue(firings):
            for part in _parts(firings, indexes):
                blobs = Blobs()
                encoded = pack([[firings[i].name, encode_firing(firings[i], blobs)] for i in part])
                calls.append(self._calls.build_once("fire", queue, self._keys.cancel(""), encoded, *blobs.all))
                parts.append(part)
        if len(calls) == 1 or self._keys.cluster:  # the nodes of a Cluster do not wait for each other
            given: list[Any] = [await self._connection.run(*call, repeat=True) for call in calls]
        else:
            given = await self._connection.run_many(calls, repeat=True) if calls else []
        for part, gives in zip(parts, given, strict=True):
            answers |= {i: read_fired(firings[i], answer) for i, answer in zip(part, gives, strict=True)}
        return [answers[i] for i in range(len(firings))]

    async def drop_schedule(self, queue: str, name: str, version: int) -> bool:
        """Delete a schedule if its version is still this one; the jobs that it put stay."""
        return await self._calls.run_once("drop_schedule", queue, name, version) == 1

    async def schedules(self, queue: str, after: str | None = None, limit: int = 100) -> SchedulePage:
        """Return a page of the schedules of a queue, by the UTF-8 bytes of their names."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        found: list[ScheduleRecord] = []
        more, last = 1, (after or "").encode()
        while more and not found:  # a second call only after records that cannot be read
            more, *flat = await self._calls.run("schedules", queue, last, min(limit, MAX_BATCH))
            found, last = _read_flat(queue, flat), flat[-2] if flat else last
        return SchedulePage(found, found[-1].name if more else None)


def _read_flat(queue: str, flat: list[bytes]) -> list[ScheduleRecord]:
    """Read names and records that follow each other; those that cannot be read are left out."""
    read = (read_schedule(queue, flat[at], flat[at + 1]) for at in range(0, len(flat), 2))
    return [record for record in read if record is not None]


def _parts(firings: Sequence[Firing], indexes: list[int]) -> list[list[int]]:
    """Cut firings of one queue into calls; a firing is never cut, so one with many or long jobs is a call."""
    parts: list[list[int]] = []
    ticks = size = 0
    for i in indexes:
        ticks += len(firings[i].ticks) + 1
        size += size_of(firings[i])
        if not parts or ticks > MAX_BATCH or size > MAX_BYTES:
            parts.append([])
            ticks, size = len(firings[i].ticks) + 1, size_of(firings[i])
        parts[-1].append(i)
    return parts
