"""Plans: flows of jobs that are described first, then stored; each job runs when those before it have ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Concatenate, Generic, Literal, ParamSpec, Self, TypeVar, cast

from msgspec.structs import replace

from penstock.client.answers import Cancelled, JobStatus
from penstock.client.queue import Queue
from penstock.client.tasks import TaskCall
from penstock.host import AppHost
from penstock.model.bindings import Binding, Ended, Taken, encode_bindings
from penstock.model.clock import Span, span_ms
from penstock.model.flow import Condition, End, FlowPart, GenerationRef, JobRef, Notice, Plan
from penstock.model.ids import check_name, family_of, new_id
from penstock.model.job import NewJob
from penstock.model.serde import decode, encode
from penstock.storage.base import MAX_BATCH, PutStatus
from penstock.storage.flowing import need_flowing, relay_family

__all__ = ["Flow", "Node", "Nodes", "Started"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

#: The end of an upstream job on which each part of it can be had.
_ON: dict[Taken, Condition] = {"result": "completed", "error": "failed", "outcome": "ended"}


class _Later:
    """Stands for a value that is not there yet; it can only be an argument of a node, or an element of a list."""

    def __init__(self, nodes: list[Node[Any]], taken: Taken, many: bool) -> None:
        self.nodes, self.many = nodes, many
        self.taken: Taken = taken

    def _refuse(self, *args: Any) -> Any:
        raise TypeError(
            f"the {self.taken} of a node is not there yet: hand it to add, put or map as a whole argument, or as an "
            "element of a list"
        )

    __bool__ = __len__ = __iter__ = __add__ = __getitem__ = __call__ = __str__ = __int__ = __eq__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__


class Node(Generic[R]):
    """A job of a plan. Its `result`, `outcome` and `error` stand for values, to be handed to other nodes."""

    def __init__(self, flow: Flow, number: int, queue: str, task: TaskCall[..., Any] | None) -> None:
        self._flow, self.number, self.queue, self.task = flow, number, queue, task
        self.name: str | None = None
        self.arguments: Any = None
        self.options: dict[str, Any] = {}
        self.bindings: list[Binding] = []
        #: The nodes that it waits for: number of the node, condition, and whether the value is wanted.
        self.edges: list[tuple[int, Condition, bool]] = []

    @property
    def id(self) -> str:
        """The id of its job."""
        own = self.options.get("id")
        return own or f"{self._flow.id}~{self._flow.generation}/{self.name or self.number}"

    @property
    def result(self) -> R:
        """Its result: the dependent runs if it completes."""
        return cast("R", _Later([self], "result", False))

    @property
    def outcome(self) -> Ended[R]:
        """How it ended: the dependent runs in any case."""
        return cast("Ended[R]", _Later([self], "outcome", False))

    @property
    def error(self) -> Any:
        """Its error: the dependent runs only if it fails or is cancelled."""
        return _Later([self], "error", False)

    def after(self, *nodes: Node[Any], on: Condition = "completed") -> Self:
        """Make it wait for other nodes, without their values."""
        for node in nodes:
            self._flow.check(node, self)
            self.edges.append((node.number, on, False))
        return self

    def named(self, name: str) -> Self:
        """Give it a name, which its id ends with."""
        check_name(name, "name")
        if any(node.name == name for node in self._flow.nodes):
            raise ValueError(f"two nodes are named {name!r}")
        self.name = name
        return self


class Nodes(Generic[R]):
    """The nodes that `map` made, in the order of the items."""

    def __init__(self, nodes: list[Node[R]]) -> None:
        self._nodes = nodes

    def __len__(self) -> int:
        return len(self._nodes)

    def __getitem__(self, at: int) -> Node[R]:
        return self._nodes[at]

    def __iter__(self) -> Iterator[Node[R]]:
        return iter(self._nodes)

    @property
    def results(self) -> list[R]:
        """Their results: the dependent runs if all complete."""
        return cast("list[R]", _Later(list(self._nodes), "result", True))

    @property
    def outcomes(self) -> list[Ended[R]]:
        """How they ended: the dependent runs in any case."""
        return cast("list[Ended[R]]", _Later(list(self._nodes), "outcome", True))


class Flow:
    """A plan: nodes are added to it, then `start` stores it."""

    def __init__(
        self, host: AppHost, queue: Queue, id: str | None, fail_fast: bool, result_ttl: Span,
        headers: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self._host, self._queue = host, queue
        self.id = new_id() if id is None else check_name(id, "id")
        self.generation = new_id()[-10:]
        self._fail_fast, self._ttl = fail_fast, span_ms(result_ttl, "result_ttl")
        self._headers = dict(headers or {})
        self.nodes: list[Node[Any]] = []

    def add(self, task: TaskCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add the call of a task; arguments may be results of other nodes."""
        node: Node[R] = Node(self, len(self.nodes), task.queue.name, task)
        node.options = task.job_options()
        bound = task.definition.parameters.bind(args, kwargs)
        node.arguments = self._bind(node, bound)
        self.nodes.append(node)
        return node

    def map(self, task: TaskCall[Concatenate[T, ...], R], items: Iterable[T] | Nodes[T], /) -> Nodes[R]:
        """Add the call of a task for each item, or for the result of each node."""
        if isinstance(items, Nodes):
            values: list[Any] = [node.result for node in cast("Nodes[Any]", items)]
        else:
            values = list(items)
        return Nodes([cast("Node[R]", cast("Any", self).add(task, value)) for value in values])

    def put(self, queue: str, payload: Any, **options: Any) -> Node[Any]:
        """Add a job of a queue with a handler; values of a payload that is a dict may be results of other nodes."""
        node: Node[Any] = Node(self, len(self.nodes), queue, None)
        node.options = options
        node.arguments = self._bind(node, cast("dict[str, Any]", payload)) if isinstance(payload, dict) else payload
        self.nodes.append(node)
        return node

    def check(self, node: Node[Any], user: Node[Any]) -> None:
        """Raise if a node is not of this flow, or not before the one that uses it."""
        if node.number >= user.number or node.number >= len(self.nodes) or self.nodes[node.number] is not node:
            raise ValueError("a node can only use nodes of the same flow that were added before it")

    def _bind(self, node: Node[Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return arguments without values that are not there yet, and note where these go."""
        plain = dict(arguments)
        for name, value in arguments.items():
            if isinstance(value, _Later):
                plain[name] = [] if value.many else None
                self._take(node, value, name, None)
            elif isinstance(value, list | tuple):
                items = list(cast("Iterable[Any]", value))
                later = [(at, each) for at, each in enumerate(items) if isinstance(each, _Later)]
                for at, each in later:
                    items[at] = None
                    self._take(node, each, name, at)
                if later:
                    plain[name] = items
        return plain

    def _take(self, node: Node[Any], later: _Later, argument: str, position: int | None) -> None:
        first = len(node.edges)
        for each in later.nodes:
            self.check(each, node)
            node.edges.append((each.number, _ON[later.taken], True))
        numbers = tuple(range(first, len(node.edges)))
        node.bindings.append(Binding(argument, numbers, later.taken, later.many, position))

    # storing -------------------------------------------------------------------------------------

    async def start(self, result: Node[R] | Nodes[R] | None = None) -> Started[R]:
        """Store the flow; its jobs run from now on. A flow of this id that is alive is joined."""
        storage = await self._host.opened()
        flows = need_flowing(storage)
        wanted: list[Node[Any]] = [result] if isinstance(result, Node) else list(result or ())
        default = encode(self._host.codec(self._queue.name).result_for(self.id), None, "result")
        plan = Plan(wanted[0].number if isinstance(result, Node) else None, self._fail_fast, self._ttl, default=default)
        refs = tuple(JobRef(node.queue, node.id) for node in self.nodes)
        large = len(self.nodes) >= MAX_BATCH
        part = FlowPart(generation=self.generation, dependencies=() if large else refs, plan=plan, open=large)
        options: dict[str, Any] = {"id": self.id} | ({"headers": self._headers} if self._headers else {})
        top = replace(self._host.new_job(self._queue.name, None, options), flow=part)
        jobs = [self._job(node, {each.number for each in wanted}) for node in reversed(self.nodes)]
        if not large:
            [answer, *_] = await storage.put([top, *jobs])
        else:
            [answer] = await storage.put([top])
            for at in range(0, len(refs), MAX_BATCH):
                await flows.extend(self._queue.name, self.id, self.generation, refs[at : at + MAX_BATCH], at)
            for at in range(0, len(jobs), MAX_BATCH):
                await storage.put(jobs[at : at + MAX_BATCH])
                await flows.extend(self._queue.name, self.id, self.generation, (), 0)
            await flows.extend(self._queue.name, self.id, self.generation, (), len(refs), True)
        await relay_family(storage, family_of(self._queue.name))
        return Started(self._host, self._queue, self.id, answer.status is PutStatus.SUSPENDED, result)

    def _job(self, node: Node[Any], wanted: set[int]) -> NewJob:
        """Return the job of a node, with the notices to the flow and to its dependents."""
        options: dict[str, Any] = {"id": node.id, **node.options}
        if self._headers:
            own = cast("dict[str, str]", options.get("headers") or {})
            options["headers"] = {**self._headers, **own}
        required = node.number in wanted
        later = [
            (each, n, on, wants)
            for each in self.nodes
            for n, (to, on, wants) in enumerate(each.edges)
            if to == node.number
        ]
        handled = any(on != "completed" for _, _, on, _ in later)
        to_flow = Notice(self._queue.name, self.id, self.generation, node.number, "ended", required, handled, required)
        sent = [
            Notice(each.queue, each.id, self.generation, n, cast("Condition", on), wants)
            for each, n, on, wants in later
        ]
        refs = tuple(JobRef(self.nodes[to].queue, self.nodes[to].id) for to, _, _ in node.edges)
        part = FlowPart(
            generation=self.generation, parent=GenerationRef(self._queue.name, self.id, self.generation),
            notices=(to_flow, *sent), dependencies=refs, binds=encode_bindings(node.bindings),
        )  # fmt: skip
        return replace(self._host.new_job(node.queue, node.arguments, options), flow=part)


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
        await self._queue.wait(self.id, timeout)
        return await self.result()

    async def result(self) -> R:
        """Return the value of the result node; raises as `Queue.result` does."""
        await self._queue.result(self.id)
        if self._result is None:
            return cast("R", None)
        nodes = [self._result] if isinstance(self._result, Node) else list(self._result)
        values = await self._values({node.number: node for node in nodes})
        found = [values[node.number] for node in nodes]
        return cast("R", found[0] if isinstance(self._result, Node) else found)

    async def _values(self, nodes: Mapping[int, Node[Any]]) -> dict[int, Any]:
        """Return the values of nodes, as the flow has kept them."""
        flows, after, more = need_flowing(await self._host.opened()), -1, True
        values: dict[int, Any] = {}
        while more:
            page = await flows.dependencies(self._queue.name, self.id, after)
            for entry in page.dependencies if page is not None else ():
                after = entry.number
                node = nodes.get(entry.number)
                if node is not None and entry.end is End.COMPLETED and entry.value is not None:
                    value = decode(self._host.codec(entry.queue).result_for(entry.id), entry.value)
                    values[entry.number] = value if node.task is None else node.task.definition.convert_result(value)
            more = page is not None and page.more
        return values

    async def cancel(self, running: Literal["refuse", "forget", "signal", "kill"] | None = None) -> Cancelled:
        """Cancel the flow, and its unfinished children; `running` decides about running ones."""
        return await self._queue.cancel(self.id, running)

    async def retry(self) -> bool:
        """Run the failed and cancelled children again; False if the flow has not ended so."""
        return await self._queue.retry(self.id) == 1
