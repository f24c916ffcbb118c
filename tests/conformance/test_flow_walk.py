"""Random walks with flows: dependencies, notices, plans, journals and signals of a storage are those of the model."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from penstock.model.flow import (
    ABANDONED_MS,
    Condition,
    FlowPart,
    GenerationRef,
    JobRef,
    NewCheckpoint,
    Notice,
    Plan,
    SignalWait,
    plain_generation,
)
from penstock.model.job import NewJob, Update
from penstock.storage.base import ClaimRef, Complete, Fail, Report, Request, Resolution, Settlement, Storage, Suspend
from penstock.storage.flowing import Flowing
from penstock.testing.conformance.strategies import GROUPS, IDS, LEASE, QUEUES, SECOND, WORKERS, small_bytes
from tests.conformance.test_model import WalkWithLimits, WalkWithSetbacks, walk_on
from tests.support import Backend, share_of

pytestmark = [pytest.mark.only("model", "memory", "sqlite", "redis", "valkey"), pytest.mark.timeout(900)]

EXAMPLES = {"model": 60, "memory": 150, "sqlite": 30, "redis": 30, "valkey": 10}

NAMES = ("one", "two")
MARKS = ("g1", "g1", "g2")
FAMILIES = ("q", "other")
queues = st.sampled_from(["q", "q", "q/side", "other"])
ids = st.sampled_from(IDS[:4])
refs = st.builds(JobRef, queues, ids)
conditions: st.SearchStrategy[Condition] = st.sampled_from(["completed", "failed", "ended", "ended"])
notices = st.builds(
    Notice, queues, ids, st.sampled_from(MARKS), st.integers(0, 2), conditions, wants=st.booleans(),
    handled=st.booleans(), required=st.booleans(),
)  # fmt: skip
ttls = st.sampled_from([0, SECOND, None])
plans = st.builds(
    Plan,
    result=st.sampled_from([None, 0, 1]),
    fail_fast=st.booleans(),
    ttl=ttls,
    failed_ttl=st.sampled_from([0, 9_000_000]),
)
parents = st.none() | st.builds(GenerationRef, queues, ids, st.sampled_from(MARKS))
checkpoints = st.builds(
    NewCheckpoint, st.sampled_from(NAMES), st.sampled_from(["step", "cursor", "signal", "call"]), small_bytes,
    signals=st.just(NAMES),
)  # fmt: skip


@st.composite
def parts(draw: st.DrawFn) -> FlowPart:
    """Draw the part of a new job in flows; its parent, if it has one, gets a notice of it."""
    parent = draw(st.none() | parents)
    sent = draw(st.lists(notices, max_size=2))
    if parent is not None:
        sent.append(Notice(parent.queue, parent.id, parent.generation, draw(st.integers(0, 2)), "ended"))
    return FlowPart(
        generation=draw(st.sampled_from(["", *MARKS])),
        dependencies=tuple(draw(st.lists(refs, max_size=3))),
        notices=tuple(sent),
        binds=draw(small_bytes),
        parent=parent,
        plan=draw(st.none() | st.none() | plans),
        open=draw(st.sampled_from([False, False, True])),
    )


class FlowRules(WalkWithSetbacks):
    """The rules of flows, beside those of all other walks."""

    def __init__(self) -> None:
        super().__init__()
        self.flows: dict[str, tuple[str, int]] = {}  # generation and next dependency by token, queue and id

    async def _compare(self, reference: Storage) -> None:
        await super()._compare(reference)
        queue, id = QUEUES[self.comparisons % len(QUEUES)], IDS[self.comparisons // len(QUEUES) % len(IDS)]
        sides = [cast(Flowing, side) for side in (self.storage, reference)]
        journals = [await side.read_journal(queue, id) for side in sides]
        assert journals[0] == journals[1], f"read_journal({queue!r}, {id!r})"
        found = [await side.dependencies(queue, id) for side in sides]
        assert found[0] == found[1], f"dependencies({queue!r}, {id!r})"

    @rule(
        queue=queues,
        id=ids,
        part=parts(),
        group=st.sampled_from([None, None, *GROUPS]),
        delay=st.sampled_from([None, SECOND]),
        update=st.booleans(),
    )
    def put_flow(self, queue: str, id: str, part: FlowPart, group: str | None, delay: int | None, update: bool) -> None:
        plain = not (part.dependencies or part.plan or part.open)
        flags = Update() if update and plain else None
        self.both("put", [NewJob(queue=queue, id=id, payload=b"f", flow=part, group=group, delay=delay, update=flags)])

    @rule(data=st.data(), size=st.integers(1, 4), plan=plans, mark=st.sampled_from(MARKS))
    def put_plan(self, data: st.DataObject, size: int, plan: Plan, mark: str) -> None:
        """Put a whole flow: its children wait for each other in a chain, or for none."""
        queue, id = data.draw(queues), data.draw(ids)
        children = data.draw(st.lists(refs, min_size=size, max_size=size, unique_by=repr))
        parent = GenerationRef(queue, id, mark)
        part = FlowPart(generation=mark, dependencies=tuple(children), plan=plan)
        jobs = [NewJob(queue=queue, id=id, payload=b"plan", flow=part)]
        chain = data.draw(st.booleans())
        for number in reversed(range(size)):
            sent = [Notice(queue, id, mark, number, "ended", wants=True, handled=data.draw(st.booleans()))]
            if chain and number + 1 < size:
                after = children[number + 1]
                sent.append(Notice(after.queue, after.id, mark, 0, data.draw(conditions), wants=True))
            waits = (children[number - 1],) if chain and number else ()
            part = FlowPart(generation=mark, parent=parent, notices=tuple(sent), dependencies=waits)
            ref = children[number]
            jobs.append(NewJob(queue=ref.queue, id=ref.id, payload=b"%d" % number, flow=part))
        self.both("put", jobs)

    @rule(
        names=st.lists(queues, min_size=1, max_size=2, unique=True),
        limit=st.integers(1, 4),
        worker=st.sampled_from(WORKERS),
    )
    def claim_flows(self, names: list[str], limit: int, worker: str) -> None:
        self.made += 1
        claimed = self.both("claim", [Request(name, limit) for name in names], worker, LEASE, f"token{self.made:011}")
        for claim in claimed.claims:
            self.tokens.append(ClaimRef(claim.queue, claim.id, claim.token))
            mark = claim.flow.generation if claim.flow else plain_generation(claim.created)
            self.flows[claim.token + claim.queue + claim.id] = (mark, claim.flow.total if claim.flow else 0)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), delay=st.sampled_from([None, None, 0, SECOND]), sleep=st.sampled_from([None, "nap"]),
          stored=st.lists(checkpoints, max_size=2), wait=st.booleans(), back=st.integers(0, 2))  # fmt: skip
    def suspend(
        self, data: st.DataObject, delay: int | None, sleep: str | None, stored: list[NewCheckpoint], wait: bool,
        back: int,
    ) -> None:  # fmt: skip
        """Suspend a run: for children, a signal, a time, or for nothing."""
        held = data.draw(st.sampled_from(self.tokens[-4:]), "held")
        mark, total = self.flows.get(held.token + held.queue + held.id, ("g1", 0))
        children = data.draw(st.lists(refs, max_size=2))
        puts = [
            NewJob(
                queue=ref.queue, id=ref.id, payload=b"c",
                flow=FlowPart(
                    parent=GenerationRef(held.queue, held.id, mark),
                    notices=(Notice(held.queue, held.id, mark, number, "ended", wants=True),),
                ),
            )
            for number, ref in enumerate(children, total)
        ]  # fmt: skip
        first = max(0, total - back)
        self.made += 1
        signal = SignalWait(f"wait{self.made % 3}", (data.draw(st.sampled_from(NAMES)),)) if wait else None
        wish = Suspend(
            checkpoints=tuple(stored), puts=tuple(puts), first=first, count=total + len(puts) - first, signal=signal,
            delay=delay, sleep=sleep if delay is not None else None,
        )  # fmt: skip
        self.finish_run(held, wish)

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), fails=st.booleans(), ttl=st.sampled_from([0, SECOND, 9_000_000, None]), then=st.booleans())
    def end_run(self, data: st.DataObject, fails: bool, ttl: int | None, then: bool) -> None:
        """End one of the last runs, with a follow-up job or a culprit."""
        held = data.draw(st.sampled_from(self.tokens[-4:]), "held")
        self.made += 1
        family = held.queue.partition("/")[0]
        after = (NewJob(queue=family, id=f"then{self.made}", payload=b"t", fresh=True),) if then else ()
        end: Resolution = Complete(b"r", ttl, after)
        if fails:
            end = Fail(b"e", ttl, None, (), culprits=(data.draw(st.integers(0, 2)),) if then else ())
        self.finish_run(held, end)

    def finish_run(self, held: ClaimRef, end: Resolution) -> None:
        settlement = Settlement(held.queue, held.id, held.token, end)
        self.settled.append(settlement)
        self.both("settle", [settlement])

    @precondition(lambda self: self.tokens)
    @rule(data=st.data(), stored=st.lists(checkpoints, min_size=1, max_size=3))
    def report_checkpoints(self, data: st.DataObject, stored: list[NewCheckpoint]) -> None:
        held = data.draw(st.sampled_from(self.tokens[-4:]), "held")
        self.both("report", [Report(queue=held.queue, id=held.id, token=held.token, checkpoints=tuple(stored))])

    @rule(queue=queues, id=ids, name=st.sampled_from(NAMES), value=small_bytes)
    def signal(self, queue: str, id: str, name: str, value: bytes) -> None:
        self.both("signal", queue, id, name, value)

    @rule(
        queue=queues,
        id=ids,
        mark=st.sampled_from(MARKS),
        more=st.lists(refs, max_size=2),
        first=st.integers(0, 3),
        final=st.booleans(),
    )
    def extend(self, queue: str, id: str, mark: str, more: list[JobRef], first: int, final: bool) -> None:
        self.both("extend", queue, id, mark, more, first, final)

    @rule(
        queue=queues,
        named=st.lists(ids, min_size=1, max_size=2, unique=True),
        completed=st.booleans(),
        fresh=st.booleans(),
    )
    def revive_flow(self, queue: str, named: list[str], completed: bool, fresh: bool) -> None:
        self.both("revive", queue, named, completed, fresh)

    @rule(families=st.sampled_from([FAMILIES, ("q",), ("other",)]), limit=st.sampled_from([1, 2, 1000]))
    def relay(self, families: tuple[str, ...], limit: int) -> None:
        self.both("relay", families, limit)

    @rule(late=st.sampled_from([True, False, False]))
    def wait_for_the_producer(self, late: bool) -> None:
        if late:
            self.move_the_clock(ABANDONED_MS)


class FlowRulesWithLimits(FlowRules, WalkWithLimits):
    """The same with limits."""


def test_a_random_walk_with_flows_agrees_with_the_model(backend: Backend) -> None:
    """Any verbs of jobs and of flows in any order: the storage answers as the model does."""
    walk_on(FlowRules, backend, share_of(EXAMPLES[backend.name]))


def test_a_random_walk_with_flows_and_limits_agrees_with_the_model(backend: Backend) -> None:
    """The same with limits of families, queues and groups."""
    walk_on(FlowRulesWithLimits, backend, share_of(EXAMPLES[backend.name] // 2))
