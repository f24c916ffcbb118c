"""The verbs of flows of the Redis storage: the protocol `Flowing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.errors import QueueFull
from penstock.model.flow import (
    DependencyPage,
    Extended,
    JobRef,
    JournalPage,
    Relayed,
    SignalStatus,
)
from penstock.model.ids import family_of
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Put
from penstock.storage.flowing import check_flows
from penstock.storage.redis.blobs import Blobs, text
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import encode_job, pack
from penstock.storage.redis.flow_codec import encode_refs, read_checkpoint, read_dependency
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.put import read_puts
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["RedisFlowing"]


class RedisFlowing:
    """The part of `RedisStorage` that keeps flows; see `penstock.storage.flowing` for each verb."""

    _calls: ScriptCalls
    _connection: Connection
    _families: ClusterFamilies
    _keys: Keys
    _schema: Schema

    async def _put_flow(self, jobs: Sequence[NewJob], max_queued: int | None) -> list[Put]:
        """Store jobs with parts in flows, up to `MAX_BATCH` of one family (of all without a Cluster) in one step."""
        check_flows(jobs)
        if self._keys.cluster:
            for new in jobs:
                self._check_one_family(new)
        if not self._schema.known:
            await self._schema.write(self._connection)
        answers: list[Put] = []
        while len(answers) < len(jobs):
            chosen = self._one_step(jobs[len(answers) :])
            queue, blobs = chosen[0].queue, Blobs()
            entries = pack([[self._keys.prefix(new.queue), new.queue, encode_job(new, blobs)] for new in chosen])
            most = -1 if max_queued is None else max_queued
            for name in {new.queue for new in chosen} if self._keys.cluster else ():
                await self._families.add(name)
            also = {new.queue for new in chosen}
            answer = await self._calls.run_once("put_flow", queue, entries, most, *blobs.all, also=also)
            if answer[0] < 0:
                waiting, added = answer[1]
                raise QueueFull(queue, waiting, most, added)
            for name in answer[1]:
                await self._families.add(text(name), created=True)
            answers += read_puts(answer[2], len(chosen))
        return answers

    def _check_one_family(self, new: NewJob) -> None:
        """Raise `ValueError` if a job is to wait for one of another family, or to notify one."""
        part = new.flow
        if part is None:
            return
        others = {ref.queue for ref in (*part.dependencies, *part.notices, *([part.parent] if part.parent else []))}
        for other in sorted(others):
            if family_of(other) != family_of(new.queue):
                raise ValueError(
                    f"on Redis Cluster a flow stays in its family: {other!r} is not in {family_of(new.queue)!r}"
                )

    def _one_step(self, jobs: Sequence[NewJob]) -> Sequence[NewJob]:
        """Return the first jobs that one call may put."""
        size = 0
        for i, new in enumerate(jobs[:MAX_BATCH]):
            other = self._keys.cluster and family_of(new.queue) != family_of(jobs[0].queue)
            if other or size > MAX_BYTES:
                return jobs[:i]
            size += len(new.payload) + len(new.headers)
        return jobs[:MAX_BATCH]

    async def signal(self, queue: str, id: str, name: str, value: bytes = b"") -> SignalStatus:
        """Send a signal to an unfinished job."""
        return cast("SignalStatus", text(await self._calls.run_once("signal", queue, id, name, value)))

    async def extend(
        self, queue: str, id: str, generation: str, dependencies: Sequence[JobRef], first: int, final: bool = False
    ) -> Extended:
        """Add dependencies to a job that was put with `open`, and with `final` end that."""
        at = 0
        while True:
            chosen = list(dependencies[at : at + MAX_BATCH])
            last = at + MAX_BATCH >= len(dependencies)
            args = id, generation, first + at, int(final and last), pack(encode_refs(chosen))
            total, over = await self._calls.run_once("extend", queue, *args)
            if last or over:
                return Extended(int(total), bool(over))
            at += MAX_BATCH

    async def revive(self, queue: str, ids: Sequence[str], completed: bool = False, fresh: bool = False) -> list[bool]:
        """Revive jobs: failed or cancelled (or completed, if asked) → queued or suspended, all counts zero."""
        answers: list[bool] = []
        while len(answers) < len(ids):
            chosen = ids[len(answers) : len(answers) + MAX_BATCH]
            codes = await self._calls.run_once("revive", queue, int(completed), int(fresh), *chosen)
            answers += [code == 1 for code in codes]
        return answers

    async def relay(self, families: Sequence[str], limit: int = MAX_BATCH) -> Relayed:
        """Apply up to `limit` effects of the outboxes of these families."""
        names = list(dict.fromkeys(families))
        groups = [[name] for name in names] if self._keys.cluster else [names] if names else []
        applied, more = 0, False
        for group in groups:
            first = True
            while first or applied < limit:
                starts = [self._keys.family_start(family) for family in group]
                args = limit - applied, int(first), self._keys.cancel(""), *starts
                count, left, bound = await self._calls.run("relay", group[0], *args)
                applied, first = applied + count, False
                if not bound:
                    more |= bool(left)
                    break
        return Relayed(applied, more)

    async def read_journal(self, queue: str, id: str, after: int = 0, limit: int = 1000) -> JournalPage | None:
        """Return the checkpoints of a job with higher numbers than `after`; None if there is no such job."""
        rows, more = await self._read_flow(queue, id, "journal", after, limit)
        return None if rows is None else JournalPage([read_checkpoint(row) for row in rows], more)

    async def dependencies(self, queue: str, id: str, after: int = -1, limit: int = 1000) -> DependencyPage | None:
        """Return the dependencies of a job with higher numbers than `after`; None if there is no such job."""
        rows, more = await self._read_flow(queue, id, "dependencies", after, limit)
        return None if rows is None else DependencyPage([read_dependency(row) for row in rows], more)

    async def _read_flow(self, queue: str, id: str, what: str, after: int, limit: int) -> tuple[list[Any] | None, bool]:
        answer = await self._calls.run("read_flow", queue, id, what, after, min(limit, MAX_BATCH))
        return (None, False) if answer is None else (answer[1:], bool(answer[0]))
