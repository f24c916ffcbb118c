"""Flows without `await`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

from penstock.client.answers import Cancelled, JobStatus
from penstock.client.flow import Flow as AsyncFlow
from penstock.client.flow import Node, Nodes
from penstock.client.flow import Started as AsyncStarted
from penstock.model.clock import Span
from penstock.sync.backends import SyncBackends
from penstock.sync.queue import Queue
from penstock.sync.task import TaskCall

__all__ = ["Flow", "Started"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Flow:
    """A plan: nodes are added to it, then `start` stores it."""

    def __init__(
        self, backends: SyncBackends, queue: str, id: str | None, fail_fast: bool, result_ttl: Span,
        headers: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self._backends, self._queue = backends, Queue(backends, queue)
        app = backends.app
        self._flow = AsyncFlow(app, app.queue(queue), id, fail_fast, result_ttl, headers)

    @property
    def id(self) -> str:
        """The id of the flow."""
        return self._flow.id

    def add(self, task: TaskCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add the call of a task; arguments may be results of other nodes."""
        return self._flow.add(task.unwrapped, *args, **kwargs)

    def map(self, task: TaskCall[Concatenate[T, ...], R], items: Iterable[T] | Nodes[T], /) -> Nodes[R]:
        """Add the call of a task for each item, or for the result of each node."""
        return cast("Any", self._flow).map(task.unwrapped, items)

    def put(self, queue: str, payload: Any, **options: Any) -> Node[Any]:
        """Add a job of a queue with a handler; values of a payload that is a dict may be results of other nodes."""
        return self._flow.put(queue, payload, **options)

    def start(self, result: Node[R] | Nodes[R] | None = None) -> Started[R]:
        """Store the flow; its jobs run from now on. A flow of this id that is alive is joined."""
        return Started(self._backends, self._queue, self._backends.run(self._flow.start(result)))


class Started(Generic[R]):
    """A flow that was stored; `enqueued` is False if a flow of its id was there already."""

    def __init__(self, backends: SyncBackends, queue: Queue, started: AsyncStarted[R]) -> None:
        self._backends, self._queue, self._started = backends, queue, started
        self.id, self.enqueued = started.id, started.enqueued

    def status(self) -> JobStatus | None:
        """Return the status of the flow."""
        return self._backends.run(self._started.status())

    def wait(self, timeout: Span | None = None) -> R:
        """Wait for the end of the flow; returns the value of its result node, or raises as `Queue.wait` does."""
        self._queue.wait(self.id, timeout)
        return self.result()

    def result(self) -> R:
        """Return the value of the result node; raises as `Queue.result` does."""
        return self._backends.run(self._started.result())

    def cancel(self, running: Literal["refuse", "forget", "signal", "kill"] | None = None) -> Cancelled:
        """Cancel the flow, and its unfinished children; `running` decides about running ones."""
        return self._backends.run(self._started.cancel(running))

    def retry(self) -> bool:
        """Run the failed and cancelled children again; False if the flow has not ended so."""
        return self._backends.run(self._started.retry())
