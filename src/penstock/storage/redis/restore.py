"""Restore: jobs exported from another storage are stored with their states, counts and times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.job import FINISHED, Snapshot, State
from penstock.model.storage_info import check_restorable
from penstock.storage.base import MAX_BATCH, MAX_BYTES
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import encode_claim, pack
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["Restorer"]


class Restorer:
    """Sends the calls of `restore.lua`; see `penstock.model.storage_info.Restorable`."""

    def __init__(
        self, connection: Connection, calls: ScriptCalls, families: ClusterFamilies, schema: Schema
    ) -> None:  # fmt: skip
        self._connection = connection
        self._calls = calls
        self._families = families
        self._schema = schema

    async def restore(self, jobs: Sequence[Snapshot]) -> list[bool]:
        """Store jobs in the states of their snapshots; return False for each whose id is taken."""
        for job in jobs:
            check_restorable(job)
        await self._schema.write(self._connection)
        answers = [False] * len(jobs)
        by_queue: dict[str, list[int]] = {}
        for i, job in enumerate(jobs):
            by_queue.setdefault(job.queue, []).append(i)
        for queue, indexes in by_queue.items():
            await self._families.add(queue)
            while indexes:
                chosen = _chunk(jobs, indexes)
                args = (pack([_head(jobs[i]) for i in chosen]), *(part for i in chosen for part in _bytes(jobs[i])))
                created, given = await self._calls.run_once("restore", queue, *args)
                if created:
                    await self._families.add(queue, created=True)
                for i, code in zip(chosen, given, strict=False):
                    answers[i] = code == 1
                indexes = indexes[len(given) :]
        return answers


def _chunk(jobs: Sequence[Snapshot], indexes: list[int]) -> list[int]:
    """Return the first of these indexes: those of jobs for one call."""
    size = 0
    for count, i in enumerate(indexes[:MAX_BATCH], 1):
        size += sum(map(len, _bytes(jobs[i])))
        if size >= MAX_BYTES:
            return indexes[:count]
    return indexes[:MAX_BATCH]


def _head(job: Snapshot) -> list[Any]:
    """Return the fields that `restore.lua` reads as numbers and text."""
    return [
        job.id, job.state.value, job.priority, job.run_at, job.created, job.attempts, job.retries, job.stalls,
        job.timeouts, False if job.group is None else job.group, job.finished or 0, job.expires or 0,
        False if job.start_by is None else job.start_by, job.cost,
        False if job.window is None else job.window,
    ]  # fmt: skip


def _bytes(job: Snapshot) -> tuple[bytes, ...]:
    """Return the fields that `restore.lua` reads as bytes."""
    value = b""
    if job.state in FINISHED:
        value = (job.result if job.state is State.COMPLETED else job.error) or b""
    return job.bounds, job.headers, job.error or b"", job.payload, encode_claim(job.started, job.worker), value
