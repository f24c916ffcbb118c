"""Storing a flow: in one put if it is small, else in parts, dependents before what they depend on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, Iterable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from penstock.client.flow_plan import Planned, Planner, Target, item_id
from penstock.client.nodes import Node, Nodes, Source, StoredPlan
from penstock.model.flow import MAX_CHILDREN, JobRef
from penstock.model.ids import family_of
from penstock.model.job import NewJob, State
from penstock.model.source import source as clock
from penstock.storage.base import MAX_BATCH, MAX_BYTES, PutStatus, Storage
from penstock.storage.flowing import Flowing, need_flowing, relay_family

__all__ = ["FlowStore"]

#: The jobs that one call stores of a flow that is stored in parts.
CHUNK = 500
#: The bytes of a reference to a job, as far as the size of a call is concerned.
REF_BYTES = 64
#: After this time (seconds) the items that an iterator has given are stored, or the producer shows that it is alive.
SILENCE = 10.0


class FlowStore:
    """Stores a flow; after an error it can be called again, and goes on where it stopped."""

    def __init__(self, flow: StoredPlan, result: Node[Any] | Nodes[Any] | None) -> None:
        self._flow, self._result = flow, result
        self._started = self._done = self._enqueued = False

    async def store(self) -> bool:
        """Store the flow; False if a flow of its id is there already."""
        if self._done:
            return self._enqueued
        storage = await self._flow.host.opened()
        flows = need_flowing(storage)
        planner = Planner(self._flow, self._result)
        planned = list(planner.jobs())
        if len(planned) - 1 > MAX_CHILDREN:
            raise ValueError(f"a flow has at most {MAX_CHILDREN} nodes, not {len(planned) - 1}")
        if not self._flow.sources and len(planned) <= MAX_BATCH and sum(map(_size, planned)) <= MAX_BYTES:
            jobs = [_with_dependencies(each) for each in planned]
            [answer, *_] = await storage.put(jobs)
            self._enqueued = self._enqueued or answer.status is PutStatus.SUSPENDED
        else:
            await self._store_in_parts(storage, flows, planner, planned)
        self._done = True
        await relay_family(storage, family_of(self._flow.queue.name))
        return self._enqueued

    async def _store_in_parts(self, storage: Storage, flows: Flowing, planner: Planner, planned: list[Planned]) -> None:
        flow, top = self._flow, planned[0]
        [answer] = await storage.put([_opened(top.job)])
        if answer.status is PutStatus.SUSPENDED:
            self._enqueued = True
        elif answer.state is not State.SUSPENDED:
            return
        else:
            [found] = await storage.get(flow.queue.name, [flow.id])
            part = None if found is None else found.flow
            if part is None or part.final:
                return
            if part.generation != flow.generation:  # another producer began it: go on with its generation
                flow.generation = part.generation
                planner = Planner(flow, self._result)
                planned = list(planner.jobs())
        parts = _Parts(storage, flows, flow, planner)
        if await parts.store(planned):
            await flows.extend(flow.queue.name, flow.id, flow.generation, (), parts.total, True)


class _Parts:
    """The storing of one flow in parts, from its top to its end."""

    def __init__(self, storage: Storage, flows: Flowing, flow: StoredPlan, planner: Planner) -> None:
        self._storage, self._flows, self._flow, self._planner = storage, flows, flow, planner
        #: The number of children.
        self.total = len(flow.nodes)

    async def store(self, planned: list[Planned]) -> bool:
        """Store all jobs but the top; False if the flow has ended meanwhile."""
        flow = self._flow
        if not await self._extend(flow.queue.name, flow.id, planned[0].refs, 0):
            return False
        for chunk in _chunks(planned[1:]):
            await self._storage.put([_with_dependencies(each) for each in chunk])
            for each in chunk:
                if _is_opened(each):
                    await self._extend(each.job.queue, each.job.id, each.refs, 0, final=not _has_source(each))
            if not await self._alive():
                return False
        for source in flow.sources:
            if not await self._store_source(source):
                return False
        return True

    async def _extend(self, queue: str, id: str, refs: Sequence[JobRef], first: int, *, final: bool = False) -> bool:
        """Add dependencies to a job; False if it has ended."""
        for at in range(0, len(refs), MAX_BATCH):
            some = refs[at : at + MAX_BATCH]
            last = final and at + MAX_BATCH >= len(refs)
            answer = await self._flows.extend(queue, id, self._flow.generation, some, first + at, last)
            if answer.over:
                return False
        return True

    async def _alive(self) -> bool:
        """Show that the producer is alive; False if the flow has ended."""
        flow = self._flow
        return not (await self._flows.extend(flow.queue.name, flow.id, flow.generation, (), 0)).over

    # iterators -----------------------------------------------------------------------------------

    async def _store_source(self, source: Source) -> bool:
        """Store the jobs of an iterator, part by part; False if the flow has ended meanwhile."""
        flow, first, width = self._flow, self.total, len(source.maps)
        joins = [node for node in flow.nodes if node.sources and node.sources[0][0].source is source]
        size = max(1, CHUNK // width)
        while source.pending or await self._read(source, size):
            items = source.pending
            if first + (source.stored + len(items)) * width > MAX_CHILDREN:
                raise ValueError(f"a flow has at most {MAX_CHILDREN} children, and its iterator gives more")
            indexes = range(source.stored, source.stored + len(items))
            jobs = self._item_jobs(source, items, first, joins)
            refs = [_item_ref(flow, nodes, index) for index in indexes for nodes in source.maps]
            if not await self._extend(flow.queue.name, flow.id, refs, first + source.stored * width):
                return False
            for join in joins:
                refs = [_item_ref(flow, nodes, index) for index in indexes for nodes, _ in join.sources]
                begin = len(join.edges) + source.stored * len(join.sources)
                await self._extend(join.queue, join.id, refs, begin)
            for chunk in _chunks_of_jobs(jobs):
                await self._storage.put(chunk)
            source.stored += len(items)
            source.pending = []
        for join in joins:
            total = len(join.edges) + source.stored * len(join.sources)
            await self._flows.extend(join.queue, join.id, flow.generation, (), total, True)
        self.total += source.stored * width
        return True

    def _item_jobs(self, source: Source, items: list[Any], first: int, joins: list[Node[Any]]) -> list[NewJob]:
        """Return the jobs of some items: of each map over them, the last maps first."""
        flow, width = self._flow, len(source.maps)
        jobs: list[NewJob] = []
        for at in range(width - 1, -1, -1):
            nodes = source.maps[at]
            assert nodes.task is not None
            definition = nodes.task.definition
            for index, item in enumerate(items, source.stored):
                targets = [
                    Target(_queue_of(each), item_id(flow, each, index), 0, "completed", True)
                    for each in source.maps
                    if each.upstream is nodes
                ]
                for join in joins:
                    begin = len(join.edges) + index * len(join.sources)
                    targets += [
                        Target(join.queue, join.id, begin + k, on, True)
                        for k, (of, on) in enumerate(join.sources)
                        if of is nodes
                    ]
                given = None if nodes.upstream is not None else item
                arguments = definition.parameters.bind((given,), {})
                if nodes.upstream is None:
                    definition.check(arguments)
                number = first + index * width + at
                jobs.append(self._planner.item_job(nodes, index, arguments, number, targets))
        return jobs

    async def _read(self, source: Source, size: int) -> bool:
        """Read the next items into `source.pending`; False at the end."""
        if source.iterator is None:
            items = source.items
            source.iterator = aiter(items) if isinstance(items, AsyncIterable) else iter(items)
        if isinstance(source.items, Iterable):
            began = clock.monotonic()
            for item in source.iterator:
                source.pending.append(item)
                if len(source.pending) >= size or clock.monotonic() - began > SILENCE:
                    break
        else:
            await self._read_async(source, size)
        return bool(source.pending)

    async def _read_async(self, source: Source, size: int) -> None:
        """Read from an async iterator; while it gives nothing, show that the producer is alive."""
        reading: asyncio.Task[Any] | None = None
        try:
            while len(source.pending) < size:
                reading = reading or asyncio.ensure_future(_next(source.iterator))
                await asyncio.wait([reading], timeout=SILENCE)
                if not reading.done():
                    if source.pending:
                        return
                    await self._alive()
                    continue
                found, reading = reading.result(), None
                if not found:
                    return
                source.pending += found
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])


async def _next(iterator: Any) -> list[Any]:
    try:
        return [await anext(iterator)]
    except StopAsyncIteration:
        return []


def _queue_of(nodes: Nodes[Any]) -> str:
    assert nodes.task is not None
    return nodes.task.queue.name


def _item_ref(flow: StoredPlan, nodes: Nodes[Any], index: int) -> JobRef:
    return JobRef(_queue_of(nodes), item_id(flow, nodes, index))


def _size(planned: Planned) -> int:
    part = planned.job.flow
    notices = 0 if part is None else len(part.notices)
    return len(planned.job.payload) + REF_BYTES * (len(planned.refs) + notices)


def _has_source(planned: Planned) -> bool:
    return planned.node is not None and bool(planned.node.sources)


def _is_opened(planned: Planned) -> bool:
    """Return whether a job gets its dependencies by `extend`."""
    return len(planned.refs) > MAX_BATCH or _has_source(planned)


def _opened(job: NewJob) -> NewJob:
    assert job.flow is not None
    return replace(job, flow=replace(job.flow, open=True))


def _with_dependencies(planned: Planned) -> NewJob:
    """Return a job with the jobs that it waits for, if they are not added later."""
    if _is_opened(planned):
        return _opened(planned.job)
    assert planned.job.flow is not None
    return replace(planned.job, flow=replace(planned.job.flow, dependencies=tuple(planned.refs)))


def _chunks(planned: Sequence[Planned]) -> Iterator[list[Planned]]:
    """Yield jobs in parts for one call each; a job that gets its dependencies later is the last of its part."""
    chunk: list[Planned] = []
    size = 0
    for each in planned:
        if chunk and (len(chunk) == CHUNK or size + _size(each) > MAX_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(each)
        size += _size(each)
        if _is_opened(each):
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


def _chunks_of_jobs(jobs: Sequence[NewJob]) -> Iterator[list[NewJob]]:
    for chunk in _chunks([Planned(job, []) for job in jobs]):
        yield [each.job for each in chunk]
