"""Plans: flows of jobs that are described first, then stored; each job runs when those before it have ended."""

from __future__ import annotations

from collections.abc import AsyncIterable, Collection, Iterable, Mapping
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from msgspec.structs import replace

from penstock.aio import refused_in_plain_handlers
from penstock.client.flow_store import FlowStore
from penstock.client.nodes import Later, Node, Nodes, Source, StoredPlan, bind, check_plain
from penstock.client.queue import Queue
from penstock.client.started import Started
from penstock.client.tasks import TaskCall
from penstock.host import AppHost
from penstock.model.checks import check_flag
from penstock.model.clock import Span, span_ms
from penstock.model.flow import MAX_CHILDREN, MAX_DEPTH
from penstock.model.headers import encode_user_headers
from penstock.model.ids import check_name, new_id

__all__ = ["Flow"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


@refused_in_plain_handlers(lambda flow: flow.host.driven)
class Flow:
    """A plan: nodes are added to it, then `start` stores it."""

    def __init__(
        self, host: AppHost, queue: Queue, id: str | None, fail_fast: bool, result_ttl: Span,
        headers: Mapping[str, str] | None,
    ) -> None:  # fmt: skip
        self.host, self.queue = host, queue
        self.id = new_id() if id is None else check_name(id, "id")
        #: The generation of the flow, which the ids of its children have in them.
        self.generation = new_id()[-10:]
        check_flag(fail_fast, "fail_fast")
        encode_user_headers(headers)
        self.fail_fast, self.ttl = fail_fast, span_ms(result_ttl, "result_ttl")
        self.headers = dict(headers or {})
        self.nodes: list[Node[Any]] = []
        self.sources: list[Source] = []
        #: The node of another plan that this one is included by.
        self.included_as: Node[Any] | None = None
        self._names: set[str] = set()
        self._maps = 0
        self._foreign: list[Node[Any]] = []
        self._store: FlowStore | None = None

    def __repr__(self) -> str:
        return f"<Flow {self.id!r} in {self.queue.name!r} with {len(self.nodes)} nodes>"

    def add(self, task: TaskCall[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Node[R]:
        """Add the call of a task; arguments may be results of other nodes."""
        return cast("Node[R]", self._add(task, args, kwargs))

    def map(
        self, task: TaskCall[Concatenate[T, ...], R], items: Iterable[T] | AsyncIterable[T] | Nodes[T], /
    ) -> Nodes[R]:
        """Add the call of a task for each item, or for the result of each node.

        An iterator, also an async one, is read while the flow is stored: it may give up to 1,000,000 items.
        """
        if isinstance(items, Later):
            raise TypeError("map takes the nodes themselves: flow.map(task, nodes), not nodes.results")
        if isinstance(items, Nodes):
            upstream = cast("Nodes[Any]", items)
            if upstream.source is not None:
                return self._map_source(task, upstream.source, upstream)
            values: Iterable[Any] = [node.result for node in upstream]
        elif isinstance(items, str | bytes | Mapping):
            raise TypeError(f"items must be a list or an iterator of items, not {type(cast('Any', items)).__name__}")
        elif isinstance(items, Collection):
            values = cast("Collection[Any]", items)
        elif isinstance(items, Iterable | AsyncIterable):
            source = Source(cast("Any", items))
            self.sources.append(source)
            return self._map_source(task, source, None)
        else:
            raise TypeError(f"items must be a list or an iterator of items, not {type(items).__name__}")
        nodes = [cast("Node[R]", self._add(task, (value,), {})) for value in values]
        return Nodes(self, nodes, cast("TaskCall[..., R]", task))

    def put(self, queue: str, payload: Any, **options: Any) -> Node[Any]:
        """Add a job of a queue with a handler; values of a payload that is a dict may be results of other nodes."""
        node = self._node(check_name(queue, "queue"), None, options)
        if isinstance(payload, dict):
            node.arguments = bind(node, cast("dict[str, Any]", payload))
        else:
            check_plain(payload, "payload")
            node.arguments = payload
        return self._append(node)

    def include(self, plan: Flow, result: Node[R], /) -> Node[R]:
        """Add another plan as one node, which ends with it and has the result of one of its nodes.

        Its nodes may use values of nodes that were added here before. It is stored with this flow.
        """
        if not isinstance(plan, Flow):
            raise TypeError(f"include takes a plan, not {type(plan).__name__}")
        plan.check_open()
        if plan is self or self._depth_below(plan) + self._depth() > MAX_DEPTH:
            raise ValueError(f"a plan cannot include itself, and plans are at most {MAX_DEPTH} deep")
        if result.flow is not plan:
            raise ValueError("the result must be a node of the plan that is included")
        if plan.sources:
            raise ValueError("a plan with an iterator cannot be included: give its map a list")
        node = self._node(plan.queue.name, result.task, {})
        node.plan, node.plan_result = plan, result
        for each in plan.foreign:
            if each.flow is not self:
                self._foreign.append(each)
        plan.included_as = node
        return self._append(node)

    async def start(self, result: Node[R] | Nodes[R] | None = None) -> Started[R]:
        """Store the flow; its jobs run from now on. A flow of this id that is alive is joined.

        After an error, call it again within a minute: it goes on where it stopped, and stores nothing twice. A flow of
        more than 1,000 nodes, or 4 MB, or with an iterator is stored in parts; its nodes run as soon as they are there.
        """
        self._check_start(result)
        if self._store is None:
            self._store = FlowStore(self, result)
        enqueued = await self._store.store()
        return Started(self.host, self.queue, self.id, enqueued, result)

    # checks --------------------------------------------------------------------------------------

    @property
    def foreign(self) -> list[Node[Any]]:
        """The nodes of other plans that its nodes use."""
        return self._foreign

    def check_order(self, node: Node[Any], user: Node[Any]) -> None:
        """Raise if a node of this flow is not before the one that uses it; those of other flows are checked later."""
        of = node.flow
        if of is self:
            if node.number >= user.number:
                raise ValueError("a node can only use nodes of the same flow that were added before it")
            return
        while of is not self and of.included_as is not None:
            of = of.included_as.flow
        if of is not self:
            self._foreign.append(node)

    def take_name(self, name: str) -> None:
        """Raise if another node has this name."""
        if name in self._names:
            raise ValueError(f"two nodes are named {name!r}: names are for one node each")
        self._names.add(name)

    def check_open(self) -> None:
        """Raise if the plan is stored, or part of another one."""
        if self._store is not None:
            raise ValueError("the flow was started: make another one with app.flow()")
        if self.included_as is not None:
            raise ValueError("the plan is part of another one already: make another one with app.flow()")

    def _check_start(self, result: Any) -> None:
        if self.included_as is not None:
            raise ValueError("the plan is part of another one: start that")
        if self._foreign:
            node = self._foreign[0]
            raise ValueError(
                f"{node!r} is not of the same flow: a node can only use nodes of its plan, or of one that includes it"
            )
        if result is None:
            return
        if isinstance(result, Later):
            raise TypeError("start takes the node itself: start(node), not start(node.result)")
        if not isinstance(result, Node | Nodes):
            raise TypeError(f"result must be a node or nodes, not {type(result).__name__}")
        if result.flow is not self:
            raise ValueError("the result must be a node of this flow")

    def _depth(self) -> int:
        depth, outer = 1, self.included_as
        while outer is not None:
            depth, outer = depth + 1, outer.flow.included_as
        return depth

    def _depth_below(self, plan: StoredPlan) -> int:
        inner = [self._depth_below(node.plan) for node in plan.nodes if node.plan is not None]
        return 1 + max(inner, default=0)

    # nodes ---------------------------------------------------------------------------------------

    def _node(self, queue: str, task: TaskCall[..., Any] | None, options: dict[str, Any]) -> Node[Any]:
        self.check_open()
        if options.get("on_conflict") == "raise":
            raise ValueError('a node cannot have on_conflict="raise": it joins the job that has its id')
        if len(self.nodes) >= MAX_CHILDREN:
            raise ValueError(f"a flow has at most {MAX_CHILDREN} nodes: include other plans")
        node: Node[Any] = Node(self, len(self.nodes), queue, task)
        node.options = options
        return node

    def _append(self, node: Node[Any]) -> Node[Any]:
        for at, binding in enumerate(node.bindings):
            if binding.count is None:  # the values of an iterator: their dependencies come after the others
                first = len(node.edges) + binding.first
                node.bindings[at] = replace(binding, first=first, step=len(node.sources))
        self.nodes.append(node)
        return node

    def _add(self, task: TaskCall[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Node[Any]:
        if not isinstance(task, TaskCall):
            raise TypeError(f"add and map take a task of the app, not {type(task).__name__}; put is for handlers")
        definition = task.definition
        node = self._node(task.queue.name, task, task.job_options())
        bound = definition.parameters.bind(args, kwargs)
        node.arguments = bind(node, bound, definition.parameters.inputs)
        taken = {binding.argument for binding in node.bindings}
        definition.check({name: value for name, value in node.arguments.items() if name not in taken})
        return self._append(node)

    def _map_source(
        self, task: TaskCall[Concatenate[T, ...], R], source: Source, upstream: Nodes[Any] | None
    ) -> Nodes[R]:
        self.check_open()
        if upstream is not None and upstream.flow is not self:
            raise ValueError("the nodes of an iterator can only be used in their own plan")
        nodes: Nodes[R] = Nodes(self, [], cast("TaskCall[..., R]", task))
        nodes.source, nodes.upstream, nodes.mark = source, upstream, f"m{self._maps}"
        self._maps += 1
        source.maps.append(nodes)
        return nodes
