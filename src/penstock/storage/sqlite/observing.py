"""The verbs of statistics and error groups of the SQLite storage: the protocol `Observing`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.storage.base import Page
from penstock.storage.observing import (
    RINGS,
    ErrorGroupPage,
    QueueGroupPage,
    QueueStats,
    RunTimes,
    Sample,
    Step,
)
from penstock.storage.sqlite import error_groups, groups, stats
from penstock.storage.sqlite.verbs import SqliteVerbs

__all__ = ["SqliteObserving"]


class SqliteObserving(SqliteVerbs):
    """The part of `SqliteStorage` that keeps statistics; see `penstock.storage.observing` for each verb."""

    async def stats(self, queues: Sequence[str]) -> list[QueueStats]:
        """Return counts, pause, totals and latencies of queues, all read at one moment."""
        return await self._read_whole(lambda tx: stats.stats(tx, queues))

    async def record_stats(self, worker: str, times: Sequence[RunTimes]) -> int:
        """Add the measured times of runs, and sample the queues for this minute; returns the storage's time (ms)."""
        return await self._write(lambda tx: stats.record_stats(tx, times))

    async def history(self, queue: str | None, step: Step = 1, since: int = 0) -> list[Sample]:
        """Return the samples of a queue, or (None) of all together, oldest first."""
        if step not in RINGS:
            raise ValueError(f"step must be 1, 10 or 60, not {step!r}")
        return await self._read(lambda tx: stats.history(tx, queue, step, since))

    async def history_bytes(self, queues: Sequence[str]) -> int:
        """Return how many bytes the samples of these queues have, and those of all queues together."""
        return await self._read(lambda tx: stats.history_bytes(tx, queues))

    async def error_groups(self, queue: str, after: str | None = None, limit: int = 100) -> ErrorGroupPage:
        """Return the error groups of a queue, the one seen last first."""
        _check_limit(limit)
        return await self._read(lambda tx: error_groups.error_groups(tx, queue, after, limit))

    async def group_jobs(self, queue: str, key: str, after: str | None = None, limit: int = 100) -> Page:
        """Return the failed jobs of an error group, the one that failed last first."""
        _check_limit(limit)
        if after is not None and not (after.isascii() and after.isdigit() and len(after) < 19):
            raise ValueError("after must be the cursor of an earlier page")
        before = None if after is None else int(after)
        return await self._read(lambda tx: error_groups.group_jobs(tx, queue, key, before, limit))

    async def groups(self, queue: str, after: str | None = None, limit: int = 100, prefix: str = "") -> QueueGroupPage:
        """Return the groups with queued jobs or jobs in backoff: those in the rotation by their turns, then others."""
        _check_limit(limit)
        start = groups.parse_start(after, prefix)
        return await self._read_whole(lambda tx: groups.groups(tx, queue, start, limit, prefix))


def _check_limit(limit: int) -> None:
    if limit < 1:
        raise ValueError(f"limit must be at least 1, not {limit}")
