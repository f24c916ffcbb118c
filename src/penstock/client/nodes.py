"""The nodes of a plan: jobs that are described, and the values that they will have."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Iterator, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar, cast

from penstock.client.tasks import TaskCall
from penstock.errors import JobError
from penstock.host import AppHost
from penstock.model.bindings import Binding, Ended, Inputs, Taken
from penstock.model.flow import Condition, short_id
from penstock.model.ids import check_name

__all__ = ["ON", "Edge", "Later", "Node", "Nodes", "Source", "StoredPlan", "bind", "check_plain"]

R = TypeVar("R")

#: The end of an upstream job on which each part of it can be had.
ON: dict[Taken, Condition] = {"result": "completed", "error": "failed", "outcome": "ended", "inputs": "completed"}


class StoredPlan(Protocol):
    """A plan (`Flow`), as its nodes and those who store it see it."""

    host: AppHost
    queue: Any
    id: str
    generation: str
    fail_fast: bool
    ttl: int
    headers: dict[str, str]
    nodes: list[Node[Any]]
    sources: list[Source]
    included_as: Node[Any] | None

    def check_order(self, node: Node[Any], user: Node[Any]) -> None: ...

    def take_name(self, name: str) -> None: ...


class Later:
    """A value that is not there yet; it can only be an argument of a node, or an element of a list."""

    def __init__(self, nodes: Node[Any] | Nodes[Any], taken: Taken) -> None:
        self.nodes = nodes
        self.taken: Taken = taken

    def _refuse(self, *args: Any) -> Any:
        raise TypeError(
            f"the {self.taken} of a node is not there yet: hand it to add, put or map as a whole argument, or as an "
            "element of a list, and work with it in the task that gets it"
        )

    __bool__ = __len__ = __iter__ = __add__ = __radd__ = __sub__ = __mul__ = __lt__ = __gt__ = __contains__ = _refuse
    __getitem__ = __call__ = __str__ = __format__ = __int__ = __float__ = __index__ = __aiter__ = __await__ = _refuse  # type: ignore[assignment]
    __eq__ = __ne__ = _refuse  # type: ignore[assignment]
    __hash__ = object.__hash__

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._refuse()


class Edge(NamedTuple):
    """Wait of a node for another one: that node, the end that it needs, and whether it takes the value."""

    node: Node[Any]
    on: Condition
    wants: bool


class Node(Generic[R]):
    """A job of a plan. Its `result`, `outcome` and `error` stand for values, to be handed to other nodes."""

    def __init__(self, flow: StoredPlan, number: int, queue: str, task: TaskCall[..., Any] | None) -> None:
        self.flow, self.number, self.queue, self.task = flow, number, queue, task
        self.name: str | None = None
        self.arguments: Any = None
        self.options: dict[str, Any] = {}
        self.bindings: list[Binding] = []
        #: The nodes that it waits for, in the order of its dependencies.
        self.edges: list[Edge] = []
        #: The nodes of an iterator that it waits for, whose dependencies come after the others.
        self.sources: list[tuple[Nodes[Any], Condition]] = []
        #: The plan that the node stands for, and the node with its result.
        self.plan: StoredPlan | None = None
        self.plan_result: Node[Any] | None = None

    def __repr__(self) -> str:
        return f"<Node {self.name or self.number} of {self.queue!r}>"

    @property
    def id(self) -> str:
        """The id of its job."""
        own: str | None = self.options.get("id")
        return own or short_id(f"{self.flow.id}~{self.flow.generation}/{self.name or self.number}")

    @property
    def result(self) -> R:
        """Its result: the dependent runs if it completes."""
        return cast("R", Later(self, "result"))

    @property
    def outcome(self) -> Ended[R]:
        """How it ended: the dependent runs in any case."""
        return cast("Ended[R]", Later(self, "outcome"))

    @property
    def error(self) -> JobError:
        """Its error: the dependent runs only if it fails or is cancelled."""
        return cast("JobError", Later(self, "error"))

    def after(self, *nodes: Node[Any], on: Condition = "completed") -> Self:
        """Make it wait for other nodes, without their values."""
        if on not in ("completed", "failed", "ended"):
            raise ValueError(f"on must be 'completed', 'failed' or 'ended', not {on!r}")
        self.check_waits()
        for node in nodes:
            if not isinstance(node, Node):
                raise TypeError(f"after takes nodes, not {type(node).__name__}")
            self.flow.check_order(node, self)
        self.edges += [Edge(node, on, False) for node in nodes]
        return self

    def named(self, name: str) -> Self:
        """Give it a name, which its id ends with."""
        check_name(name, "name")
        if name.isdecimal():
            raise ValueError(f"the name {name!r} is a number, and nodes without a name have those: add a letter")
        self.flow.take_name(name)
        self.name = name
        return self

    def check_waits(self) -> None:
        """Raise if it cannot wait for others: a plan begins at once, and an update would change a waiting job."""
        if self.plan is not None:
            raise ValueError("a plan that is included cannot wait as a whole: let its first nodes wait")
        if self.options.get("on_conflict") == "update":
            raise ValueError('a node that waits for others cannot have on_conflict="update": leave it out to join')

    @property
    def source(self) -> tuple[str, str] | None:
        """The job whose serde its result has, if that is another: the result node of an included plan."""
        inner = self.plan_result
        return None if inner is None else inner.source or (inner.queue, inner.id)


class Source:
    """The items of `map` that are read while the flow is stored, and the maps over them."""

    def __init__(self, items: Iterable[Any] | AsyncIterable[Any]) -> None:
        self.items = items
        self.maps: list[Nodes[Any]] = []
        #: How many items are stored, and those that were read and may not be.
        self.stored = 0
        self.pending: list[Any] = []
        self.iterator: Any = None


class Nodes(Generic[R]):
    """The nodes that `map` made, in the order of the items. Those of an iterator exist only when they are stored."""

    def __init__(self, flow: StoredPlan, nodes: list[Node[R]], task: TaskCall[..., R] | None = None) -> None:
        self.flow, self._nodes, self.task = flow, nodes, task
        #: The iterator, the number of this map in the flow, and the map that it takes its items from.
        self.source: Source | None = None
        self.mark = ""
        self.upstream: Nodes[Any] | None = None

    def __len__(self) -> int:
        self._check_known()
        return len(self._nodes)

    def __getitem__(self, at: int) -> Node[R]:
        self._check_known()
        return self._nodes[at]

    def __iter__(self) -> Iterator[Node[R]]:
        self._check_known()
        return iter(self._nodes)

    def _check_known(self) -> None:
        if self.source is not None:
            raise TypeError("the nodes of an iterator are known when they are stored: give map a list instead")

    @property
    def results(self) -> list[R]:
        """Their results: the dependent runs if all complete."""
        return cast("list[R]", Later(self, "result"))

    @property
    def outcomes(self) -> list[Ended[R]]:
        """How they ended: the dependent runs in any case."""
        return cast("list[Ended[R]]", Later(self, "outcome"))

    @property
    def inputs(self) -> Inputs[R]:
        """Their results, which the dependent reads page by page: for more than fit into its memory."""
        return cast("Inputs[R]", Later(self, "inputs"))


def bind(node: Node[Any], arguments: Mapping[str, Any], inputs: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return arguments without values that are not there yet, and note where these go.

    `inputs` are the parameters that read their values page by page.
    """
    plain = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, Later):
            if (value.taken == "inputs") != (name in inputs):
                raise TypeError(f"argument {name!r}: nodes.inputs is for a parameter that is annotated Inputs[...]")
            if value.taken == "inputs":
                del plain[name]
            else:
                plain[name] = [] if isinstance(value.nodes, Nodes) else None
            _take(node, value, name, None)
        elif isinstance(value, list | tuple):
            items = list(cast("Iterable[Any]", value))
            later = [(at, each) for at, each in enumerate(items) if isinstance(each, Later)]
            for at, each in later:
                if each.taken == "inputs":
                    raise TypeError(f"argument {name!r}: nodes.inputs can only be a whole argument")
                items[at] = None
                _take(node, each, name, at)
            if later:
                plain[name] = items
        else:
            check_plain(value, name)
    return plain


def check_plain(value: Any, name: str, depth: int = 3) -> None:
    """Raise if a value that is not there yet is hidden in another one, a few levels deep."""
    if isinstance(value, Later):
        raise TypeError(
            f"argument {name!r}: the {value.taken} of a node can only be a whole argument, or an element of a list"
        )
    if depth and isinstance(value, dict | list | tuple):
        held = cast("dict[Any, Any] | list[Any] | tuple[Any, ...]", value)
        for each in held.values() if isinstance(held, dict) else held[:100]:
            check_plain(each, name, depth - 1)


def _take(node: Node[Any], later: Later, argument: str, position: int | None) -> None:
    """Make a node wait for the jobs that have the values, and note which dependencies they are."""
    node.check_waits()
    on, taken, found = ON[later.taken], later.taken, later.nodes
    first = len(node.edges)
    if isinstance(found, Node):
        node.flow.check_order(found, node)
        node.edges.append(Edge(found, on, True))
        node.bindings.append(Binding(argument, first, 1, taken=taken, position=position))
        return
    if found.source is None:
        for each in found:
            node.flow.check_order(each, node)
            node.edges.append(Edge(each, on, True))
        node.bindings.append(Binding(argument, first, len(found), taken=taken, many=True, position=position))
        return
    if found.flow is not node.flow:
        raise ValueError("the nodes of an iterator can only be used in their own plan")
    if node.sources and node.sources[0][0].source is not found.source:
        raise ValueError("a node can use the values of one iterator only: give the other map a list")
    # Its first dependency is known when all arguments are: see `Flow.add`.
    node.bindings.append(Binding(argument, len(node.sources), None, taken=taken, many=True, position=position))
    node.sources.append((found, on))
