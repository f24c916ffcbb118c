"""Random graphs of jobs: which of them run depends on conditions and ends alone, and a retry mends failures."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, cast

import pytest

from penstock.model.flow import End
from penstock.model.job import State
from penstock.storage.base import Storage
from penstock.storage.redis import RedisStorage
from penstock.storage.sqlite import SqliteStorage
from penstock.storage.sqlite.transaction import Transaction
from tests.flow_graphs import DAY, ERROR, QUEUES, Driver, Graph, Outcome, random_graph, random_outcomes
from tests.support import Backend, Clock, share_of

pytestmark = [pytest.mark.only("model", "memory", "sqlite", "redis", "valkey", "cluster"), pytest.mark.timeout(600)]

EXAMPLES = {"model": 300, "memory": 120, "sqlite": 30, "redis": 30, "valkey": 10, "cluster": 10}

#: The tables of flows.
TABLES = ("generations", "dependencies", "notices", "journal", "signals", "outbox")

#: The ends of jobs that a retry of their flow revives.
REVIVED = (End.FAILED, End.CANCELLED, End.DROPPED)


async def each_graph(
    backend: Backend, storage: Storage, clock: Clock, check: Callable[[Driver, Graph, Random], Awaitable[None]],
    fail_fast: bool | None = False,
) -> None:  # fmt: skip
    """Check random graphs, one after the other in the same storage, which is empty after each (F20)."""
    for seed in range(share_of(EXAMPLES[backend.name])):
        random = Random(seed)
        choice = random.random() < 0.5 if fail_fast is None else fail_fast
        graph = random_graph(random, fail_fast=choice, number=seed)
        try:
            await check(Driver(storage, clock, random), graph, random)
            await check_empty(backend, storage, clock)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {graph}: {error}") from error


async def check_empty(backend: Backend, storage: Storage, clock: Clock) -> None:
    """Check that after all TTLs nothing is left (F20)."""
    clock.ms += 8 * DAY
    for _ in range(3):
        await storage.purge(QUEUES)
    for queue in QUEUES:
        assert not any((await storage.counts(queue)).values())
    if isinstance(storage, SqliteStorage):
        counts = await storage.submit(lambda tx: {table: _count(tx, table) for table in TABLES}, False)
        assert counts == dict.fromkeys(TABLES, 0)
    elif isinstance(storage, RedisStorage):
        assert not [key for key in backend.leftovers() if "requests" not in key]
    else:
        assert not cast(Any, storage).model.outbox


def _count(tx: Transaction, table: str) -> int:
    return tx.execute(f"SELECT count(*) FROM {table}", ()).fetchone()[0]


def check_values(driver: Driver, graph: Graph, outcomes: dict[int, Outcome]) -> None:
    """Check that each run got the values of its dependencies that it wanted."""
    ends = graph.ends(outcomes)
    for node, seen in driver.seen:
        for edge, (end, value) in zip(graph.edges[node], seen, strict=True):
            assert end is ends[edge.node], f"node {node} saw that {edge.node} was {end}"
            if edge.wants and end is End.COMPLETED:
                assert value == b"v%d" % edge.node
            elif edge.wants and end is End.FAILED:
                assert value == ERROR
            elif not edge.wants:
                assert value is None


async def test_which_nodes_run_is_a_function_of_conditions_and_ends(
    backend: Backend, storage: Storage, clock: Clock
) -> None:
    """Whatever the order of ends, put and crashes: the nodes that run, their values and the end of the flow agree."""

    async def check(driver: Driver, graph: Graph, random: Random) -> None:
        outcomes = random_outcomes(random, graph)
        driver.suspends = True
        await driver.put(graph)
        await driver.drive(graph, outcomes)
        ends = graph.ends(outcomes)
        runs = [node for node, end in ends.items() if end in (End.COMPLETED, End.FAILED)]
        assert sorted(driver.ran) == runs
        check_values(driver, graph, outcomes)
        assert await driver.recorded_ends(graph) == ends
        assert await driver.flow_state(graph) is graph.state(ends)

    await each_graph(backend, storage, clock, check)


async def test_a_retry_of_the_flow_ends_as_if_the_failures_had_not_been(
    backend: Backend, storage: Storage, clock: Clock
) -> None:
    """Failed and cancelled nodes of a flow run again after its retry, with `fail_fast` too; completed ones do not."""

    async def check(driver: Driver, graph: Graph, random: Random) -> None:
        outcomes = random_outcomes(random, graph)
        await driver.put(graph)
        await driver.drive(graph, outcomes)
        mended: dict[int, Outcome] = dict.fromkeys(range(len(graph)), "complete")
        hopeless = graph.fail_fast and graph.state(graph.ends(mended)) is not State.COMPLETED
        if hopeless or await driver.flow_state(graph) is State.COMPLETED:
            return
        done = {node: end for node, end in (await driver.recorded_ends(graph)).items() if end is End.COMPLETED}
        driver.ran.clear()
        assert await storage.revive("q", [graph.flow]) == [True]
        await driver.drive(graph, mended)
        ends = graph.ends(mended, done)
        assert sorted(driver.ran) == [node for node, end in ends.items() if end is End.COMPLETED and node not in done]
        assert await driver.recorded_ends(graph) == ends
        assert await driver.flow_state(graph) is graph.state(ends)

    await each_graph(backend, storage, clock, check, fail_fast=None)


async def test_a_retry_of_some_nodes_opens_what_they_had_closed(
    backend: Backend, storage: Storage, clock: Clock
) -> None:
    """The retry of some of the failed nodes lets run what waited only for them, and the flow ends again."""

    async def check(driver: Driver, graph: Graph, random: Random) -> None:
        outcomes = random_outcomes(random, graph)
        await driver.put(graph)
        await driver.drive(graph, outcomes)
        kept = {node: end for node, end in (await driver.recorded_ends(graph)).items() if end is End.COMPLETED}
        failed = [node for node, end in (await driver.recorded_ends(graph)).items() if end in REVIVED]
        chosen = [node for node in failed if random.random() < 0.6]
        if await driver.flow_state(graph) is State.COMPLETED or not chosen:
            return
        kept |= {node: graph.ends(outcomes)[node] for node in failed if node not in chosen}
        driver.ran.clear()
        random.shuffle(chosen)
        for node in chosen:
            ref = graph.ref(node)
            assert await storage.revive(ref.queue, [ref.id]) == [True]
        mended: dict[int, Outcome] = dict.fromkeys(range(len(graph)), "complete")
        await driver.drive(graph, mended)
        ends = graph.ends(mended, kept)
        assert sorted(driver.ran) == [node for node, end in ends.items() if end is End.COMPLETED and node not in kept]
        assert await driver.flow_state(graph) is graph.state(ends)

    await each_graph(backend, storage, clock, check)


async def test_a_cancelled_flow_leaves_no_unfinished_child(backend: Backend, storage: Storage, clock: Clock) -> None:
    """After the cancel of a flow its children are cancelled or end by themselves, and nothing is stuck (F18)."""

    async def check(driver: Driver, graph: Graph, random: Random) -> None:
        outcomes = random_outcomes(random, graph)
        await driver.put(graph)
        driver.held = await driver.storage_claims()
        mode: Any = random.choice(["refuse", "forget", "signal", "kill"])
        before = await driver.flow_state(graph)
        [answer] = await storage.cancel("q", [graph.flow], mode, DAY)
        assert answer.status == "cancelled"
        assert before is State.SUSPENDED
        begun = len(driver.held)
        await driver.drive(graph, outcomes)
        assert len(driver.ran) <= begun
        assert await driver.flow_state(graph) is State.CANCELLED

    await each_graph(backend, storage, clock, check)
