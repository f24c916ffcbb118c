"""Flows without `await`."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, TypeVar, cast

from penstock.client.answers import Cancelled, JobStatus, Page
from penstock.client.flow import Flow as AsyncFlow
from penstock.client.flow_answers import Child
from penstock.client.nodes import Node, Nodes
from penstock.client.started import Started as AsyncStarted
from penstock.client.tasks import TaskCall as AsyncTaskCall
from penstock.model.clock import Span
from penstock.model.job import State, StateName
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

    def __repr__(self) -> str:
        return repr(self._flow)

    @property
    def id(self) -> str:
        """The id of the flow."""
        return self._flow.id

    @property
    def unwrapped(self) -> AsyncFlow:
        """The same plan of the async app. For plans that include it."""
        return self._flow

    def add(self, task: TaskCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add the call of a task; arguments may be results of other nodes."""
        return self._flow.add(_task_of(task), *args, **kwargs)

    def map(self, task: TaskCall[Concatenate[T, ...], R], items: Iterable[T] | Nodes[T], /) -> Nodes[R]:
        """Add the call of a task for each item, or for the result of each node.

        An iterator is read while the flow is stored: it may give up to 1,000,000 items.
        """
        if isinstance(items, AsyncIterable):
            raise TypeError("items must be a list or an iterator; an async iterator is for the async app's flows")
        return cast("Any", self._flow).map(_task_of(task), items)

    def put(self, queue: str, payload: Any, **options: Any) -> Node[Any]:
        """Add a job of a queue with a handler; values of a payload that is a dict may be results of other nodes."""
        return self._flow.put(queue, payload, **options)

    def include(self, plan: Flow, result: Node[R], /) -> Node[R]:
        """Add another plan as one node, which ends with it and has the result of one of its nodes.

        Its nodes may use values of nodes that were added here before. It is stored with this flow.
        """
        if not isinstance(plan, Flow):
            raise TypeError(f"include takes a plan, not {type(plan).__name__}")
        return self._flow.include(plan.unwrapped, result)

    def start(self, result: Node[R] | Nodes[R] | None = None) -> Started[R]:
        """Store the flow; its jobs run from now on. A flow of this id that is alive is joined.

        After an error, call it again within a minute: it goes on where it stopped, and stores nothing twice. A flow of
        more than 1,000 nodes, or 4 MB, or with an iterator is stored in parts; its nodes run as soon as they are there.
        """
        return Started(self._backends, self._queue, self._backends.run(self._flow.start(result)))


class Started(Generic[R]):
    """A flow that was stored; `enqueued` is False if a flow of its id was there already."""

    def __init__(self, backends: SyncBackends, queue: Queue, started: AsyncStarted[R]) -> None:
        self._backends, self._queue, self._started = backends, queue, started
        self.id, self.enqueued = started.id, started.enqueued

    def __repr__(self) -> str:
        return repr(self._started)

    def status(self) -> JobStatus | None:
        """Return the status of the flow."""
        return self._backends.run(self._started.status())

    def wait(self, timeout: Span | None = None) -> R:
        """Wait for the end of the flow; returns the value of its result node, or raises as `Queue.wait` does."""
        self._queue.wait_end(self.id, timeout)
        return self._backends.run(self._started.value())

    def result(self) -> R:
        """Return the value of the result node; raises as `Queue.result` does."""
        return self._backends.run(self._started.result())

    def children(
        self, state: State | StateName | None = None, after: str | None = None, limit: int = 100
    ) -> Page[Child]:
        """Return a page of the children, of one state or of all; `after` is the cursor of the page before."""
        return self._backends.run(self._started.children(state, after, limit))

    def cancel(self, running: Literal["refuse", "forget", "signal", "kill"] | None = None) -> Cancelled:
        """Cancel the flow, and its unfinished children; `running` decides about running ones."""
        return self._backends.run(self._started.cancel(running))

    def retry(self) -> bool:
        """Run the failed and cancelled children again; False if the flow has not ended so."""
        return self._backends.run(self._started.retry())


def _task_of(task: TaskCall[P, R]) -> AsyncTaskCall[P, R]:
    if not isinstance(task, TaskCall):
        raise TypeError(f"add and map take a task of the app, not {type(task).__name__}; put is for handlers")
    return task.unwrapped
