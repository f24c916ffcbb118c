"""The verbs of statistics and error groups of the Redis storage: the protocol `Observing`."""

from __future__ import annotations

import contextlib
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.errors import UNREADABLE, ErrorKind
from penstock.model.clock import MAX_MS
from penstock.model.fingerprint import is_key
from penstock.model.job import Snapshot, State
from penstock.model.sample_codec import encode_body, encode_times, read_sample
from penstock.model.stats import Sample, combine, within_ring
from penstock.storage.base import MAX_BATCH, Page
from penstock.storage.observing import (
    MAX_GROUP_WAITING,
    MAX_RINGS,
    RINGS,
    ErrorGroup,
    ErrorGroupPage,
    QueueGroup,
    QueueGroupPage,
    QueueStats,
    RunTimes,
    Step,
    format_group_cursor,
    page_of_groups,
    parse_group_cursor,
)
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import read_snapshot, text
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.limits import read_pause
from penstock.storage.redis.script_calls import ScriptCall, ScriptCalls

__all__ = ["RedisObserving"]

#: The fields of samples of each step: see `_ring.lua`.
_FIELDS: dict[Step, str] = {1: "m", 10: "t", 60: "h"}

#: Queues that are read or sampled in one packet.
_TOGETHER = 100

_decode_group = msgspec.msgpack.Decoder(tuple[int, int, str, str, str, str]).decode


class RedisObserving:
    """The part of `RedisStorage` that keeps statistics; see `penstock.storage.observing` for each verb."""

    _connection: Connection
    _keys: Keys
    _calls: ScriptCalls
    _families: ClusterFamilies

    async def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Return counts, pause, totals and latencies of queues, each read at one moment."""
        found = await self._run_on_all(lambda name: self._calls.build("stats", name, ()), queues)
        return [_read_stats(name, *found[name]) for name in queues]

    async def _run_on_all(self, build: Callable[[str], ScriptCall], queues: Sequence[str]) -> dict[str, list[Any]]:
        """Run the calls of many queues, again where more jobs have fallen due than one call promotes."""
        found: dict[str, list[Any]] = {}
        left = list(dict.fromkeys(queues))
        while left:
            names, left = left[:_TOGETHER], left[_TOGETHER:]
            calls = [build(name) for name in names]
            answers = await self._connection.run_many(calls, repeat=True)
            for name, (again, *answer) in zip(names, answers, strict=True):
                if again:
                    left.append(name)
                else:
                    found[name] = answer
        return found

    async def record_stats(self, worker: str, times: Sequence[RunTimes]) -> int:
        """Add the measured times of runs, and sample the queues for this minute; returns the storage's time (ms)."""
        measured = [each for each in times if each.wait.counts or each.run.counts]
        if measured:
            calls = [
                self._calls.build_once("record_stats", each.queue, encode_times(each.wait, each.run))
                for each in measured
            ]
            await self._connection.run_many(calls, repeat=True)
        now, taken = await self._calls.run_for_all_queues("take_minute")
        if taken:
            await self._sample_all(int(now))
        return int(now)

    async def _sample_all(self, now: int) -> None:
        """Sample each queue, and add what has changed in all of them to the samples of all together."""
        names: list[str] = []
        for family in await self._families.all():
            names += map(text, await self._connection.command("SMEMBERS", self._keys.names(family)))
        found = await self._run_on_all(lambda name: self._calls.build_once("sample", name, MAX_RINGS), sorted(names))
        changes = [sample for [record] in found.values() if (sample := read_sample(record)) is not None]
        await self._calls.run_once_for_all_queues("add_sample", encode_body(combine(changes, now)))

    async def history(self, queue: str | None, step: Step = 1, since: int = 0) -> list[Sample]:
        """Return the samples of a queue, or (None) of all together, oldest first."""
        if step not in RINGS:
            raise ValueError(f"step must be 1, 10 or 60, not {step!r}")
        args = _FIELDS[step], RINGS[step]
        if queue is None:
            answer = await self._calls.run_for_all_queues("history", *args)
        else:
            answer = await self._calls.run("history", queue, *args)
        looked, newest, *records = answer
        samples = [sample for record in records if (sample := read_sample(record)) is not None]
        last = read_sample(newest)
        if last is not None and looked is not None and looked.isdigit() and int(looked) > last.at:
            at, oldest = int(looked), last.oldest
            samples.append(replace(last, at=at, oldest=None if oldest is None else oldest + at - last.at))
        return within_ring(samples, step * RINGS[step], since)

    async def history_bytes(self, queues: Sequence[str]) -> int:
        """Return how much memory the samples of these queues take, and those of all queues together."""
        found = int(await self._calls.run_for_all_queues("history_bytes"))
        for at in range(0, len(queues), _TOGETHER):
            calls = [self._calls.build("history_bytes", name, ()) for name in queues[at : at + _TOGETHER]]
            found += sum(await self._connection.run_many(calls, repeat=True))
        return found

    async def error_groups(self, queue: str, after: str | None = None, limit: int = 100) -> ErrorGroupPage:
        """Return the error groups of a queue, the one seen last first."""
        _check_limit(limit)
        now, *rows = await self._calls.run("error_groups", queue)
        groups = [group for row in rows if (group := _read_group(*row)) is not None]
        return page_of_groups(groups, int(now), after, limit)

    async def group_jobs(self, queue: str, key: str, after: str | None = None, limit: int = 100) -> Page:
        """Return the failed jobs of an error group, the one that failed last first."""
        _check_limit(limit)
        position = b"" if after is None else _parse_position(after)
        found: list[Snapshot] = []
        if not is_key(key):
            return Page(found)
        more = True
        while more and len(found) < limit:
            want = min(limit - len(found), MAX_BATCH)
            now, following, *rows = await self._calls.run("group_jobs", queue, key, position, want)
            for id, record, end, *part in rows:
                job = read_snapshot(
                    queue, text(id), int(now), record, None, None, end, None, *part, format=self._calls.format
                )
                if job is not None and job.state is State.FAILED:
                    found.append(job)
            more, position = following is not None, following or b""
            if rows and more:
                break  # it ended at the limit, or because the records are long
        return Page(found, urlsafe_b64encode(position).decode() if more else None)

    async def groups(self, queue: str, after: str | None = None, limit: int = 100, prefix: str = "") -> QueueGroupPage:
        """Return the groups with queued jobs or jobs in backoff: those in the rotation by their turns, then others."""
        _check_limit(limit)
        rotates, position = (not prefix, b"") if after is None else parse_group_cursor(after)
        args = prefix, "t" if rotates else "n", position, min(limit, MAX_BATCH), MAX_GROUP_WAITING
        while (answer := await self._calls.run("groups", queue, *args))[0]:
            pass  # more jobs have fallen due than one call promotes
        _, part, position, *rows = answer
        cursor = format_group_cursor(part == b"t", position) if part else None
        return QueueGroupPage([_read_group_row(*row) for row in rows], cursor)


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")


def _read_stats(queue: str, record: bytes, pause: Any, overdue: int, damaged: int) -> QueueStats:
    sample = read_sample(record)
    assert sample is not None  # the script has just made it
    return QueueStats(queue, sample, read_pause(pause), overdue, damaged)


def _read_group_row(
    group: bytes, head: bytes | None, state: bytes, due: int, waiting: int, held: int, rotates: int, pause: Any
) -> QueueGroup:
    return QueueGroup(
        name=text(group), head=None if head is None else text(head), state=State(state.decode()),
        due=int(due) if head is not None else None, waiting=waiting, held=held, rotates=bool(rotates),
        pause=read_pause(pause),
    )  # fmt: skip


def _parse_position(after: str) -> bytes:
    with contextlib.suppress(ValueError):
        if position := b64decode(after.encode("ascii"), altchars=b"-_", validate=True):
            return position
    raise ValueError("after must be the cursor of an earlier page")


def _read_group(key: bytes, last: bytes, record: bytes, open: int) -> ErrorGroup | None:
    """Read an error group; None if it cannot be read."""
    with contextlib.suppress(*UNREADABLE, ValueError, OverflowError):
        first, count, type, message, kind, sample = _decode_group(record)
        seen = int(float(last))
        if 0 <= first <= MAX_MS and 0 <= seen <= MAX_MS and count > 0:
            return ErrorGroup(
                key=key.decode("ascii"), type=type, message=message, kind=ErrorKind(kind), first=first, last=seen,
                count=count, open=open, sample=sample,
            )  # fmt: skip
    return None
