"""A flow that was stored: its status, its result, and its children."""

from __future__ import annotations

from typing import Any, Generic, Literal, TypeVar, cast

from penstock.aio import refused_in_plain_handlers
from penstock.client.answers import Cancelled, JobStatus, Page
from penstock.client.flow_answers import Child
from penstock.client.flow_plan import item_id
from penstock.client.nodes import Node, Nodes
from penstock.client.queue import Queue
from penstock.client.tasks import TaskCall
from penstock.host import AppHost
from penstock.model.clock import Span
from penstock.model.flow import DependencyEntry, End
from penstock.model.job import State, StateName
from penstock.model.serde import decode
from penstock.storage.flowing import need_flowing

__all__ = ["Started"]

R = TypeVar("R")


@refused_in_plain_handlers(lambda started: started._host.driven)
class Started(Generic[R]):
    """A flow that was stored; `enqueued` is False if a flow of its id was there already."""

    def __init__(self, host: AppHost, queue: Queue, id: str, enqueued: bool, result: Node[R] | Nodes[R] | None) -> None:
        self._host, self._queue, self._result = host, queue, result
        self.id, self.enqueued = id, enqueued

    def __repr__(self) -> str:
        return f"<Started {self.id!r} in {self._queue.name!r}>"

    async def status(self) -> JobStatus | None:
        """Return the status of the flow."""
        return await self._queue.status(self.id)

    async def wait(self, timeout: Span | None = None) -> R:
        """Wait for the end of the flow; returns the value of its result node, or raises as `Queue.wait` does."""
        await self._queue.wait_end(self.id, timeout)
        return await self.value()

    async def result(self) -> R:
        """Return the value of the result node; raises as `Queue.result` does."""
        await self._queue.check_end(self.id)
        return await self.value()

    async def children(
        self, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Child]:
        """Return a page of the children, of one state or of all; `after` is the cursor of the page before."""
        return await self._queue.children(self.id, state, after, limit)

    async def cancel(self, running: Literal["refuse", "forget", "signal", "kill"] | None = None) -> Cancelled:
        """Cancel the flow, and its unfinished children; `running` decides about running ones."""
        return await self._queue.cancel(self.id, running)

    async def retry(self) -> bool:
        """Run the failed and cancelled children again; False if the flow has not ended so."""
        return await self._queue.retry(self.id) == 1

    async def value(self) -> R:
        """Return the value of the result node of a flow that has completed, as the flow has kept it."""
        found: Any = None
        if isinstance(self._result, Node):
            entries = await self._entries(self._result.number, 1)
            found = self._decode(self._result, self._result.task, entries.get(self._result.number))
        elif self._result is not None and self._result.source is not None:
            found = await self._values_of_items(self._result)
        elif self._result is not None:
            numbers = [node.number for node in self._result]
            entries = await self._entries(numbers[0], numbers[-1] - numbers[0] + 1) if numbers else {}
            found = [self._decode(node, node.task, entries.get(node.number)) for node in self._result]
        return cast("R", found)

    async def _entries(self, first: int, count: int | None = None) -> dict[int, DependencyEntry]:
        """Return dependencies of the flow by their numbers: `count` of them, or all."""
        flows = need_flowing(await self._host.opened())
        found: dict[int, DependencyEntry] = {}
        after, more = first - 1, True
        while more:
            limit = 1000 if count is None else min(1000, first + count - 1 - after)
            page = await flows.dependencies(self._queue.name, self.id, after, limit)
            entries = [] if page is None else page.dependencies
            found.update({entry.number: entry for entry in entries})
            after = entries[-1].number if entries else after
            more = page is not None and page.more and (count is None or after < first + count - 1)
        return found

    async def _values_of_items(self, nodes: Nodes[Any]) -> list[Any]:
        """Return the values of the jobs of an iterator, which are found by their ids."""
        [snapshot] = await (await self._host.opened()).get(self._queue.name, [self.id])
        flow = nodes.flow
        if snapshot is not None and snapshot.flow is not None:
            flow.generation = snapshot.flow.generation
        entries = {entry.id: entry for entry in (await self._entries(len(flow.nodes))).values()}
        values: list[Any] = []
        while (entry := entries.get(item_id(flow, nodes, len(values)))) is not None:
            values.append(self._decode(None, nodes.task, entry))
        return values

    def _decode(self, node: Node[Any] | None, task: TaskCall[..., Any] | None, entry: DependencyEntry | None) -> Any:
        if entry is None or entry.end is not End.COMPLETED or entry.value is None:
            return None
        queue, id = (None if node is None else node.source) or (entry.queue, entry.id)
        value = decode(self._host.codec(queue).result_for(id), entry.value)
        return value if task is None else task.definition.convert_result(value)
