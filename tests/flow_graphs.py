"""Random graphs of jobs: how they are put and driven on a storage, and which of their jobs must run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, cast

from penstock.errors import JobError
from penstock.model.flow import Condition, End, FlowPart, GenerationRef, JobRef, Notice, Plan, end_of_unmet, is_met
from penstock.model.job import FINISHED, Claim, NewJob, Snapshot, State
from penstock.storage.base import Complete, Fail, Request, Resolution, Retried, Settlement, Stall, Storage, Suspend
from penstock.storage.flowing import Flowing

QUEUES = ("q", "q/side")
FAMILY = "q"
DAY = 24 * 3600 * 1000
ERROR = JobError("Broken", "it broke").encode()

#: What becomes of a job if it gets to run: it completes, fails for good, or an operator cancels it before.
Outcome = Literal["complete", "fail", "cancel"]


@dataclass(frozen=True)
class Edge:
    """A dependency on an earlier node."""

    node: int
    on: Condition
    wants: bool


@dataclass
class Graph:
    """Nodes in an order in which each comes after those that it depends on."""

    edges: list[list[Edge]]
    result: int | None = None
    fail_fast: bool = False
    generation: str = "g1"
    flow: str = "flow"
    groups: list[str | None] = field(default_factory=list[str | None])

    def __len__(self) -> int:
        return len(self.edges)

    def ref(self, node: int) -> JobRef:
        return JobRef(QUEUES[node % 2], f"{self.flow}~{self.generation}/{node}")

    def handled(self, node: int) -> bool:
        """Return whether a failure of this node is taken up by another."""
        return any(edge.node == node and edge.on != "completed" for edges in self.edges for edge in edges)

    def notices(self, node: int) -> tuple[Notice, ...]:
        required = self.result == node
        found = [
            Notice(
                "q", self.flow, self.generation, node, "ended", wants=required, handled=self.handled(node),
                required=required,
            )
        ]  # fmt: skip
        for later, edges in enumerate(self.edges):
            target = self.ref(later)
            for number, edge in enumerate(edges):
                if edge.node == node:
                    found.append(Notice(target.queue, target.id, self.generation, number, edge.on, edge.wants))
        return tuple(found)

    def jobs(self, **options: Any) -> list[NewJob]:
        """Return the flow and its nodes, each before those that it depends on."""
        refs = tuple(self.ref(node) for node in range(len(self)))
        plan = Plan(result=self.result, fail_fast=self.fail_fast)
        part = FlowPart(generation=self.generation, dependencies=refs, plan=plan)
        made = [NewJob(queue="q", id=self.flow, payload=b"", flow=part)]
        parent = GenerationRef("q", self.flow, self.generation)
        for node in reversed(range(len(self))):
            part = FlowPart(
                generation=self.generation, parent=parent, notices=self.notices(node), binds=b"b" if node % 3 else b"",
                dependencies=tuple(self.ref(edge.node) for edge in self.edges[node]),
            )  # fmt: skip
            ref, group = self.ref(node), self.groups[node] if self.groups else None
            made.append(NewJob(queue=ref.queue, id=ref.id, payload=b"%d" % node, flow=part, group=group, **options))
        return made

    def ends(self, outcomes: Mapping[int, Outcome], kept: Mapping[int, End] | None = None) -> dict[int, End]:
        """Return how each node must end: a function of conditions and ends alone; `kept` have ended before."""
        ends: dict[int, End] = {}
        for node, edges in enumerate(self.edges):
            unmet = [end_of_unmet(ends[edge.node]) for edge in edges if not is_met(edge.on, ends[edge.node])]
            if kept and node in kept:
                ends[node] = kept[node]
            elif unmet:
                ends[node] = End.SKIPPED if End.UPSTREAM not in unmet else End.UPSTREAM
            else:
                ends[node] = OUTCOMES[outcomes[node]]
        return ends

    def state(self, ends: Mapping[int, End]) -> State:
        """Return how the flow must end."""
        fatal = [
            end for node, end in ends.items() if end not in (End.COMPLETED, End.SKIPPED) and not self.handled(node)
        ]
        if End.FAILED in fatal or (self.result is not None and ends[self.result] is not End.COMPLETED):
            return State.FAILED
        return State.CANCELLED if fatal else State.COMPLETED


OUTCOMES: dict[str, End] = {"complete": End.COMPLETED, "fail": End.FAILED, "cancel": End.CANCELLED}


def random_graph(random: Random, *, fail_fast: bool = False, number: int = 0) -> Graph:
    """Return a graph of up to nine nodes with conditions of all kinds."""
    size = random.randint(1, 9)
    edges: list[list[Edge]] = []
    for node in range(size):
        chosen = random.sample(range(node), min(node, random.choice([0, 1, 1, 2, 3])))
        kinds: list[Condition] = ["completed", "completed", "completed", "failed", "ended"]
        edges.append([Edge(each, random.choice(kinds), random.random() < 0.6) for each in chosen])
    result = random.choice([None, size - 1, random.randrange(size)])
    return Graph(edges, result, fail_fast, f"g{number}", f"flow{number}")


def random_outcomes(random: Random, graph: Graph) -> dict[int, Outcome]:
    kinds: list[Outcome] = ["complete", "complete", "complete", "fail", "cancel"]
    return {node: random.choice(kinds) for node in range(len(graph))}


class Driver:
    """Runs the jobs of a graph on a storage, in a random order, with crashes and retries in between."""

    def __init__(self, storage: Storage, clock: Any, random: Random) -> None:
        self.storage, self.clock, self.random = storage, clock, random
        self.flows = cast(Flowing, storage)
        self.ran: list[int] = []
        self.seen: list[tuple[int, tuple[Any, ...]]] = []
        self.held: list[Claim] = []
        self.tokens = 0
        #: Whether runs suspend themselves now and then: such a job has begun, and a retry of others leaves it alone.
        self.suspends = False

    async def put(self, graph: Graph, **options: Any) -> None:
        jobs = graph.jobs(**options)
        if self.random.random() < 0.5:
            await self.storage.put(jobs)
        else:
            await self._put_in_chunks(graph, jobs)

    async def _put_in_chunks(self, graph: Graph, jobs: list[NewJob]) -> None:
        """Put a flow one job at a time, some of them twice; it is final at the end."""
        plan, *nodes = jobs
        assert plan.flow is not None
        assert plan.flow.plan is not None
        part = FlowPart(generation=graph.generation, plan=plan.flow.plan, open=True)
        await self.storage.put([NewJob(queue="q", id=graph.flow, payload=b"", flow=part)])
        refs = [graph.ref(node) for node in range(len(graph))]
        await self.flows.extend("q", graph.flow, graph.generation, refs, 0)
        for job in nodes:
            await self.storage.put([job])
            if self.random.random() < 0.3:
                await self.storage.put([job])
        await self.flows.extend("q", graph.flow, graph.generation, refs, 0)
        assert not (await self.flows.extend("q", graph.flow, graph.generation, [], len(refs), True)).over

    async def get(self, ref: JobRef) -> Snapshot | None:
        return (await self.storage.get(ref.queue, [ref.id]))[0]

    async def flow_state(self, graph: Graph) -> State:
        found = await self.get(JobRef("q", graph.flow))
        assert found is not None
        return found.state

    async def drive(self, graph: Graph, outcomes: Mapping[int, Outcome]) -> None:
        """Run all that may run until nothing is left."""
        while True:
            await self._cancel(graph, outcomes)
            await self._relay()
            await self._cancel(graph, outcomes)
            claimed = await self._claim()
            self.held += claimed
            if not self.held:
                await self._relay()
                if not await self._unfinished(graph):
                    return
                assert await self._claimable(), "nothing can run although jobs are unfinished"
                continue
            self.random.shuffle(self.held)
            count = self.random.randint(1, len(self.held))
            chosen, self.held = self.held[:count], self.held[count:]
            await self.storage.settle([self._settlement(claim, outcomes) for claim in chosen])

    async def _relay(self) -> None:
        while (await self.flows.relay([FAMILY], self.random.choice([1, 2, 1000]))).more:
            pass

    async def _claimable(self) -> bool:
        return any([await self.storage.peek(queue) is not None for queue in QUEUES])

    async def storage_claims(self) -> list[Claim]:
        """Claim a few jobs."""
        return await self._claim()

    async def _claim(self) -> list[Claim]:
        self.tokens += 1
        requests = [Request(queue, self.random.randint(1, 3)) for queue in QUEUES]
        claimed = await self.storage.claim(requests, "w", 10_000, f"token{self.tokens:011}")
        return claimed.claims

    def _settlement(self, claim: Claim, outcomes: Mapping[int, Outcome]) -> Settlement:
        """Return how a run ends: now and then it is lost, or must be tried again, before its outcome."""
        node = int(claim.payload)
        roll = self.random.random()
        resolution: Resolution
        if roll < 0.08:
            resolution = Stall()
        elif roll < 0.16:
            resolution = Retried(delay=0)
        elif roll < 0.2 and self.suspends:
            resolution = Suspend(delay=0)
        else:
            self.ran.append(node)
            assert claim.flow is not None
            self.seen.append((node, tuple((d.end, d.value) for d in claim.flow.dependencies)))
            failed = outcomes[node] == "fail"
            resolution = Fail(ERROR, 7 * DAY) if failed else Complete(b"v%d" % node, self.random.choice([0, DAY]))
        return Settlement(claim.queue, claim.id, claim.token, resolution)

    async def _cancel(self, graph: Graph, outcomes: Mapping[int, Outcome]) -> None:
        """Cancel the nodes that are to be cancelled, as soon as they could run."""
        for node, outcome in outcomes.items():
            ref = graph.ref(node)
            if outcome == "cancel" and (found := await self.get(ref)) and found.state is State.QUEUED:
                await self.storage.cancel(ref.queue, [ref.id], "refuse", 7 * DAY)

    async def _unfinished(self, graph: Graph) -> list[str]:
        found = [await self.get(ref) for ref in self._refs(graph)]
        return [each.id for each in found if each is not None and each.state not in FINISHED]

    def _refs(self, graph: Graph) -> Iterable[JobRef]:
        return [JobRef("q", graph.flow), *(graph.ref(node) for node in range(len(graph)))]

    async def recorded_ends(self, graph: Graph) -> dict[int, End]:
        """Return how the nodes ended, as the flow has recorded it."""
        page = await self.flows.dependencies("q", graph.flow)
        assert page is not None
        return {entry.number: entry.end for entry in page.dependencies if entry.end is not None}
