"""Plans: how they are stored, what runs, and how they end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from penstock import ChildCounts, Job, JobCancelled, JobFailed, Penstock, State, Worker
from penstock.testing import Clock
from tests.client.flow_tasks import Calls, drain

#: The storages that have flows.
pytestmark = pytest.mark.only("memory", "sqlite")


async def test_a_diamond_joins_once_after_both(app: Penstock) -> None:
    """A join that takes two results runs once, after both."""
    calls = Calls(app)
    flow = app.flow("flows")
    top = flow.add(calls.double, 1)
    sides = [flow.add(calls.double, top.result).result for _ in range(2)]
    run = await flow.start(flow.add(calls.total, sides))
    await drain(app)
    assert await run.wait() == "8"
    assert calls.made == [1, 2, 2, ("total", [4, 4])]


async def test_a_failure_leaves_other_branches_and_puts_one_fail_job(app: Penstock) -> None:
    """A node fails: its dependent is cancelled, an independent branch completes, the flow fails, one fail job."""
    calls = Calls(app)
    failures: list[Any] = []

    @app.task(queue="bad", max_retries=0, on_failure=failures.append)
    async def bad() -> int:
        raise ValueError("broken")

    flow = app.flow("flows")
    join = flow.add(calls.total, [flow.add(bad).named("first").result])
    other = flow.add(calls.double, 4)
    run = await flow.start(join)
    await drain(app)
    with pytest.raises(JobFailed, match="first' in 'bad'"):
        await run.wait()
    assert [each.state for each in await run.children()] == [State.FAILED, State.CANCELLED, State.COMPLETED]
    assert await app.queue("double").result(other.id) == 8
    assert len(failures) == 1
    status = await run.status()
    assert status is not None
    assert status.children == ChildCounts(total=3, completed=1, failed=1, cancelled=1)


async def test_an_error_node_is_skipped_when_nothing_fails(app: Penstock) -> None:
    """The node on `.error` of a job that completes is cancelled as Skipped, and the flow completes."""
    calls = Calls(app)
    flow = app.flow("flows")
    one = flow.add(calls.double, 1)
    alert = flow.add(calls.alert, "a", one.error)
    run = await flow.start(one)
    await drain(app)
    assert await run.wait() == 2
    with pytest.raises(JobCancelled, match="Skipped"):
        await app.queue("alert").result(alert.id)
    assert [each.id for each in await run.children("cancelled")] == [alert.id]


async def test_fail_fast_ends_the_flow_while_another_runs(app: Penstock) -> None:
    """With `fail_fast` the first failure ends the flow, and queued nodes are cancelled."""
    calls = Calls(app)
    calls.broken = {1}
    flow = app.flow("flows", fail_fast=True)
    flow.add(calls.double, 1)
    late = flow.add(calls.double.options(delay=60), 2)
    run = await flow.start()
    await drain(app)
    with pytest.raises(JobFailed, match="1 is broken"):
        await run.wait()
    with pytest.raises(JobCancelled, match="FlowEnded"):
        await app.queue("double").result(late.id)


async def test_a_retry_of_the_node_itself_goes_on_with_the_flow(app: Penstock) -> None:
    """`queue.retry` of a failed node: it runs, its dependents are opened again, and the flow completes."""
    calls = Calls(app)
    calls.broken = {1}
    flow = app.flow("flows")
    one = flow.add(calls.double, 1)
    run = await flow.start(flow.add(calls.double, one.result))
    await drain(app)
    calls.broken.clear()
    assert await app.queue("double").retry(one.id) == 1
    await drain(app)
    assert await run.wait() == 4


async def test_values_are_copied_although_children_are_not_kept(app: Penstock) -> None:
    """Children with `result_ttl=0`: the join has all values."""
    calls = Calls(app)
    flow = app.flow("flows")
    nodes = [flow.add(calls.double.options(result_ttl=0), n) for n in range(3)]
    run = await flow.start(flow.add(calls.total, [node.result for node in nodes]))
    await drain(app)
    assert await run.wait() == "6"
    await app.queue("double").delete()


async def test_a_node_joins_a_kept_job_of_its_id(app: Penstock) -> None:
    """A node with the id of a completed job that is kept: its value counts, and it does not run again."""
    calls = Calls(app)
    await calls.double.options(id="x", result_ttl=60).enqueue(5)
    await drain(app)
    flow = app.flow("flows")
    run = await flow.start(flow.add(calls.total, [flow.add(calls.double.options(id="x"), 5).result]))
    await drain(app)
    assert await run.wait() == "10"
    assert calls.made == [5, ("total", [10])]


async def test_a_deleted_queue_ends_what_waits_for_its_jobs(app: Penstock) -> None:
    """Delete a queue with waiting nodes: their dependents are cancelled, and the flow ends."""
    calls = Calls(app)
    flow = app.flow("flows")
    join = flow.add(calls.total, [flow.put("nobody", 1).result])
    run = await flow.start(join)
    await app.queue("nobody").delete()
    await drain(app)
    with pytest.raises(JobFailed):
        await run.wait(5)
    assert (await app.queue("total").counts())[State.SUSPENDED] == 0


async def test_follow_ups_of_a_child_belong_to_the_plan(app: Penstock) -> None:
    """`job.then` twice deep in a node: the flow ends after both, and the follow-ups know their flow."""
    parents: list[Any] = []

    @app.handler("deep")
    async def deep(level: int, job: Job) -> None:
        parents.append(job.parent and job.parent.id)
        if level:
            job.then("deep", level - 1)

    flow = app.flow("flows", id="f")
    flow.put("deep", 2)
    run = await flow.start()
    await drain(app)
    await run.wait()
    assert parents == ["f", "f", "f"]
    assert len(await run.children()) == 3


async def test_a_flow_started_twice_is_one_flow(app: Penstock) -> None:
    """The same flow id from two producers: one flow, and both get its value."""
    calls = Calls(app)
    runs: list[Any] = []
    for _ in range(2):
        flow = app.flow("flows", id="f")
        runs.append(await flow.start(flow.add(calls.double, 3)))
    await drain(app)
    assert [await run.wait() for run in runs] == [6, 6]
    assert [run.enqueued for run in runs] == [True, False]
    assert calls.made == [3]


@pytest.mark.parametrize("shape", ["list", "iterator", "async"])
async def test_a_large_flow_is_stored_in_parts(app: Penstock, shape: str) -> None:
    """1,300 items, of a list or an iterator: the join has all values in their order, page by page."""
    calls = Calls(app)

    async def later() -> AsyncIterator[int]:
        for number in range(1300):
            yield number

    items: Any = {"list": range(1300), "iterator": iter(range(1300)), "async": later()}[shape]
    flow = app.flow("flows")
    doubled = flow.map(calls.double, flow.map(calls.double, items))
    run = await flow.start(flow.add(calls.count, doubled.inputs))
    await drain(app)
    assert await run.wait() == [1300, 4 * sum(range(1300)), 0, 4]
    status = await run.status()
    assert status is not None
    assert status.children == ChildCounts(total=2601, completed=2601)


async def test_the_values_of_an_iterator_are_the_result_of_a_flow(app: Penstock) -> None:
    """A flow whose result are the nodes of an iterator gives their values in order."""
    calls = Calls(app)
    flow = app.flow("flows")
    flow.map(calls.double, iter([7, 8]))
    run = await flow.start(flow.map(calls.double, iter(range(3))))
    await drain(app)
    assert await run.wait() == [0, 2, 4]


async def test_outcomes_of_an_iterator_and_an_empty_one(app: Penstock) -> None:
    """A join over the outcomes of an iterator runs with the error; one over an empty iterator at once."""
    calls = Calls(app)
    calls.broken = {1}
    flow = app.flow("flows")
    run = await flow.start(flow.add(calls.ends, flow.map(calls.double, iter(range(3))).outcomes))
    empty = app.flow("flows")
    none = await empty.start(empty.add(calls.total, empty.map(calls.double, iter(())).results))
    await drain(app)
    assert await run.wait() == [0, "1 is broken", 4]
    assert await none.wait() == "0"


async def test_a_producer_that_fails_goes_on_where_it_stopped(app: Penstock) -> None:
    """`start` raises in the middle of an iterator; called again it stores the rest, and nothing twice."""
    calls = Calls(app)

    class Items:
        def __init__(self) -> None:
            self.at = 0

        def __iter__(self) -> Iterator[int]:
            return self

        def __next__(self) -> int:
            self.at += 1
            if self.at == 700:
                raise ConnectionError("the source is away")
            if self.at > 1000:
                raise StopIteration
            return 1

    flow = app.flow("flows")
    join = flow.add(calls.count, flow.map(calls.double, Items()).inputs)
    with pytest.raises(ConnectionError):
        await flow.start(join)
    assert "producer is still adding" in str(await app.queue("flows").why(flow.id))
    await drain(app)
    run = await flow.start(join)
    await drain(app)
    assert (await run.wait())[0] == 999
    assert len(calls.made) == 999


async def test_a_restarted_producer_goes_on_with_the_same_generation(app: Penstock) -> None:
    """A producer that died is started again with the same id and items: each item has one job."""
    calls = Calls(app)

    def items(fail: bool) -> Iterator[int]:
        yield from range(600)
        if fail:
            raise SystemError("killed")
        yield from range(600, 700)

    for fail in (True, False):
        flow = app.flow("flows", id="f")
        join = flow.add(calls.count, flow.map(calls.double, items(fail)).inputs)
        if fail:
            with pytest.raises(SystemError):
                await flow.start(join)
        else:
            run = await flow.start(join)
            await drain(app)
            assert (await run.wait())[0] == 700
    assert sorted(calls.made) == list(range(700))


async def test_an_abandoned_flow_fails_and_its_children_are_cancelled(app: Penstock, clock: Clock) -> None:
    """A producer that is silent for a minute: the flow fails with kind abandoned, and waiting children end."""
    calls = Calls(app)

    def items() -> Iterator[int]:
        yield from range(600)
        raise SystemError("killed")

    flow = app.flow("flows", id="f")
    flow.map(calls.double.options(delay=3600), items())
    with pytest.raises(SystemError):
        await flow.start()
    clock.advance(61)
    await drain(app)
    with pytest.raises(JobFailed) as failed:
        await app.queue("flows").wait("f", 5)
    assert failed.value.error.kind == "abandoned"
    assert (await app.queue("double").counts())[State.SCHEDULED] == 0


async def test_a_plan_that_is_included_is_a_node(app: Penstock) -> None:
    """An included plan uses a value of the outer one, and gives its own to it; all are one flow."""
    calls = Calls(app)
    outer, inner = app.flow("outer", id="f", headers={"who": "me"}), app.flow("inner", headers={"to": "you"})
    one = outer.add(calls.double, 1)
    two = inner.add(calls.double, one.result)
    result = outer.include(inner, inner.add(calls.double, two.result)).named("inner")
    run = await outer.start(outer.add(calls.total, [one.result, result.result]))
    assert [each.id for each in await run.children()] == [one.id, result.id, f"f~{outer.generation}/2"]
    status = await app.queue("double").status(two.id)
    assert status is not None
    assert status.headers == {"who": "me", "to": "you"}
    assert status.parent is not None
    assert status.parent.id == result.id
    await drain(app)
    assert await run.wait() == "10"


async def test_a_failure_in_an_included_plan_is_that_of_its_node(app: Penstock) -> None:
    calls = Calls(app)
    calls.broken = {1}
    outer, inner = app.flow("outer"), app.flow("inner")
    node = outer.include(inner, inner.add(calls.double, 1))
    run = await outer.start(outer.add(calls.alert, "oh", node.error))
    await drain(app)
    assert await run.wait() == "oh"
    assert calls.made == [1, ("alert", "ValueError")]


async def test_a_cancelled_flow_with_many_children(app: Penstock) -> None:
    """Cancel of a flow of 1,500 children: all are cancelled, and none runs."""
    calls = Calls(app)
    flow = app.flow("flows")
    run = await flow.start(flow.map(calls.double, range(1500)))
    assert await run.cancel()
    await Worker(app).drain()
    assert calls.made == []
    assert (await app.queue("double").counts())[State.QUEUED] == 0


async def test_wrong_plans_are_refused_and_nothing_is_stored(app: Penstock) -> None:
    """Wrong uses of a plan raise an error that names the remedy, before anything is stored."""
    calls = Calls(app)
    flow, other = app.flow("flows"), app.flow("flows")
    one = flow.add(calls.double, 1).named("one")
    with pytest.raises(ValueError, match="two nodes are named 'one'"):
        flow.add(calls.double, 1).named("one")
    with pytest.raises(ValueError, match="joins the job that has its id"):
        flow.add(calls.double.options(on_conflict="raise"), 1)
    with pytest.raises(ValueError, match="added before it"):
        one.after(flow.add(calls.double, 2))
    with pytest.raises(TypeError, match="whole argument"):
        flow.put("q", {"deep": {"er": one.result}})
    with pytest.raises(TypeError, match="the node itself"):
        await flow.start(one.result)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="node of this flow"):
        await other.start(one)
    with pytest.raises(TypeError, match="number"):
        flow.add(calls.double, "text")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="nodes themselves"):
        flow.map(calls.double, flow.map(calls.double, [1]).results)
    with pytest.raises(ValueError, match="include itself"):
        flow.include(flow, one)
    with pytest.raises(TypeError, match="Inputs"):
        flow.add(calls.total, flow.map(calls.double, [1]).inputs)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="one iterator only"):
        flow.put("q", {"a": flow.map(calls.double, iter([1])).results, "b": flow.map(calls.double, iter([1])).results})
    assert await app.queues() == []
