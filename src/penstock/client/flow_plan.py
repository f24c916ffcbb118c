"""The planner: the jobs of a flow from its nodes, dependents before what they depend on, in one pass over its edges."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from penstock.client.nodes import Node, Nodes, StoredPlan
from penstock.host import AppHost
from penstock.model.bindings import Binding, encode_bindings
from penstock.model.flow import Condition, FlowPart, GenerationRef, JobRef, Notice, Plan, short_id
from penstock.model.job import NewJob
from penstock.model.serde import encode

__all__ = ["Planned", "Planner", "Target", "item_id"]

R = TypeVar("R")


class Planned(NamedTuple):
    """A job of a flow, the jobs that it waits for, and the node that it is of (None: the flow itself)."""

    job: NewJob
    refs: list[JobRef]
    node: Node[Any] | None = None


#: A dependent of a node: its node, the number of the dependency, the end it needs, and whether it takes the value.
_Dependent = tuple[Node[Any], int, Condition, bool]


class Planner:
    """Makes the jobs of a flow and of the plans that it includes."""

    def __init__(self, flow: StoredPlan, result: Node[Any] | Nodes[Any] | None) -> None:
        self._flow = flow
        self._host: AppHost = flow.host
        self.generation: str = flow.generation
        self._single = result if isinstance(result, Node) else None
        self._wanted: set[Node[Any]] = set()
        #: The map of an iterator whose values are the result.
        self.wanted_map: Nodes[Any] | None = None
        if isinstance(result, Nodes):
            if result.source is None:
                self._wanted = set(result)
            else:
                self.wanted_map = result
        elif result is not None:
            self._wanted = {result}
        self._dependents: dict[Node[Any], list[_Dependent]] = {}
        self._note_dependents(flow)

    def jobs(self) -> Iterator[Planned]:
        """Yield all jobs: the flow first, then each dependent before what it depends on."""
        yield from self._plan(self._flow, None, self._single, self._flow.headers)

    @property
    def parent(self) -> GenerationRef:
        """The flow, as its children name it."""
        return self._ref(self._flow)

    def item_job(
        self, nodes: Nodes[Any], index: int, arguments: Mapping[str, Any], number: int, dependents: list[Target]
    ) -> NewJob:
        """Return the job of an item of an iterator; its number is that of the flow's dependency on it."""
        task = nodes.task
        assert task is not None
        options = self._options(task.job_options(), item_id(self._flow, nodes, index), self._flow.headers)
        wanted = nodes is self.wanted_map
        handled = any(target.on != "completed" for target in dependents)
        parent = self.parent
        to_flow = Notice(*_fields(parent), number, "ended", wanted, handled, wanted)
        sent = [Notice(each.queue, each.id, self.generation, each.number, each.on, each.wants) for each in dependents]
        upstream = nodes.upstream
        refs: tuple[JobRef, ...] = ()
        binds = b""
        if upstream is not None:
            assert upstream.task is not None
            refs = (JobRef(upstream.task.queue.name, item_id(self._flow, upstream, index)),)
            [name] = task.definition.parameters.bind((None,), {})
            binds = encode_bindings([Binding(name, 0, 1)])
        part = FlowPart(
            generation=self.generation, parent=parent, notices=(to_flow, *sent), dependencies=refs, binds=binds
        )
        return replace(self._host.new_job(task.queue.name, arguments, options), flow=part)

    # helpers -------------------------------------------------------------------------------------

    def _note_dependents(self, flow: StoredPlan) -> None:
        """Note, for each node, those that wait for it: one pass over the edges."""
        for node in flow.nodes:
            for n, edge in enumerate(node.edges):
                self._dependents.setdefault(edge.node, []).append((node, n, edge.on, edge.wants))
            if node.plan is not None:
                self._note_dependents(node.plan)

    def _ref(self, flow: StoredPlan) -> GenerationRef:
        return GenerationRef(flow.queue.name, flow.id, self.generation)

    def _plan(
        self, flow: StoredPlan, node: Node[Any] | None, result: Node[Any] | None, headers: Mapping[str, str]
    ) -> Iterator[Planned]:
        """Yield the job of a plan and those of its nodes; `node` is the one that includes it."""
        if node is not None:
            flow.id, flow.generation = node.id, self.generation
        default = encode(self._host.codec(flow.queue.name).result_for(flow.id), None, "result")
        plan = Plan(None if result is None else result.number, flow.fail_fast, flow.ttl, default=default)
        refs = [JobRef(each.queue, each.id) for each in flow.nodes]
        outer = None if node is None else self._ref(node.flow)
        part = FlowPart(
            generation=self.generation, plan=plan, parent=outer,
            notices=() if node is None or outer is None else self._notices(node, outer),
        )  # fmt: skip
        options: dict[str, Any] = {"id": flow.id} | ({"headers": dict(headers)} if headers else {})
        job = replace(self._host.new_job(flow.queue.name, None, options), flow=part)
        yield Planned(job, refs, node)
        parent = self._ref(flow)
        for each in reversed(flow.nodes):
            if each.plan is not None:
                merged = {**headers, **each.plan.headers}
                required = each.plan_result
                if required is not None:
                    self._wanted.add(required)
                yield from self._plan(each.plan, each, required, merged)
            else:
                yield self._node(each, parent, headers)

    def _node(self, node: Node[Any], parent: GenerationRef, headers: Mapping[str, str]) -> Planned:
        bindings = [self._with_source(node, binding) for binding in node.bindings]
        part = FlowPart(
            generation=self.generation, parent=parent, notices=self._notices(node, parent),
            binds=encode_bindings(bindings),
        )  # fmt: skip
        refs = [JobRef(edge.node.queue, edge.node.id) for edge in node.edges]
        options = self._options(node.options, node.id, headers)
        return Planned(replace(self._host.new_job(node.queue, node.arguments, options), flow=part), refs, node)

    def _with_source(self, node: Node[Any], binding: Binding) -> Binding:
        if binding.many:
            return binding
        source = node.edges[binding.first].node.source
        return binding if source is None else replace(binding, of=source)

    def _notices(self, node: Node[Any], parent: GenerationRef) -> tuple[Notice, ...]:
        """Return the notices of a node: to its flow, and to its dependents."""
        dependents = self._dependents.get(node, [])
        wanted = node in self._wanted
        handled = any(on != "completed" for _, _, on, _ in dependents)
        to_flow = Notice(*_fields(parent), node.number, "ended", wanted, handled, wanted)
        sent = [Notice(each.queue, each.id, self.generation, n, on, wants) for each, n, on, wants in dependents]
        return (to_flow, *sent)

    def _options(self, given: Mapping[str, Any], id: str, headers: Mapping[str, str]) -> dict[str, Any]:
        options: dict[str, Any] = {**given, "id": given.get("id") or id}
        if headers:
            options["headers"] = {**headers, **(options.get("headers") or {})}
        return options


class Target(NamedTuple):
    """A dependency that the job of an item notifies."""

    queue: str
    id: str
    number: int
    on: Condition
    wants: bool


def item_id(flow: StoredPlan, nodes: Nodes[Any], index: int) -> str:
    """Return the id of the job of an item of an iterator."""
    return short_id(f"{flow.id}~{flow.generation}/{nodes.mark}.{index}")


def _fields(ref: GenerationRef) -> tuple[str, str, str]:
    return ref.queue, ref.id, ref.generation
