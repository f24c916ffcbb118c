"""Flows by the API that users call: plans, durable steps, sleeps, signals, cursors and children."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from penstock import Job, JobFailed, Penstock, SignalTimeout, State
from penstock.testing import Clock
from tests.client.flow_tasks import Calls, drain

#: The storages that have flows.
pytestmark = pytest.mark.only("memory", "sqlite")

DAY = 24 * 3600


async def test_a_chain_hands_values_on(app: Penstock) -> None:
    """Three jobs in a chain: order kept, values handed on, `wait` gives the last."""
    calls = Calls(app)
    async with app:
        flow = app.flow("flows")
        one = flow.add(calls.double, 1)
        two = flow.add(calls.double, one.result)
        run = await flow.start(flow.add(calls.double, two.result))
        await drain(app)
        assert await run.wait() == 8
        assert calls.made == [1, 2, 4]


async def test_a_map_is_joined_in_the_order_of_the_items(app: Penstock) -> None:
    calls = Calls(app)
    async with app:
        flow = app.flow("flows", id="monday")
        doubled = flow.map(calls.double, flow.map(calls.double, range(5)))
        run = await flow.start(flow.add(calls.total, doubled.results, title="sum "))
        again = await app.flow("flows", id="monday").start()
        assert "It waits for 11 of 11 jobs, first 'monday~" in str(await app.queue("flows").why("monday"))
        assert (run.enqueued, again.enqueued) == (True, False)
        await drain(app)
        assert await run.wait() == "sum 40"
        assert calls.made[-1] == ("total", [0, 4, 8, 12, 16])


async def test_a_map_over_nothing_is_joined_at_once(app: Penstock) -> None:
    calls = Calls(app)
    async with app:
        flow = app.flow("flows")
        run = await flow.start(flow.add(calls.total, flow.map(calls.double, []).results))
        await drain(app)
        assert await run.wait() == "0"


async def test_a_failure_cancels_what_waits_for_it_and_a_retry_goes_on(app: Penstock) -> None:
    """One of five fails: the join is cancelled, the flow fails; mended and retried, only it runs again."""
    calls = Calls(app)
    calls.broken = {3}
    async with app:
        flow = app.flow("flows")
        nodes = flow.map(calls.double, range(5))
        join = flow.add(calls.total, nodes.results)
        flow.add(calls.alert, "monday", join.error)
        run = await flow.start(join)
        await drain(app)
        with pytest.raises(JobFailed, match="3 is broken") as failed:
            await run.wait()
        assert failed.value.error.type == "ValueError"
        status = await app.queue(join.queue).status(join.id)
        assert status is not None
        assert status.state is State.CANCELLED
        assert status.error is not None
        assert status.error.type == "UpstreamFailed"
        assert calls.made[-1] == ("alert", "UpstreamFailed")
        calls.broken.clear()
        calls.made.clear()
        assert await run.retry()
        await drain(app)
        assert await run.wait() == "20"
        assert calls.made == [3, ("total", [0, 2, 4, 6, 8])]


async def test_outcomes_have_values_and_errors(app: Penstock) -> None:
    calls = Calls(app)
    calls.broken = {1}
    async with app:
        flow = app.flow("flows")
        run = await flow.start(flow.add(calls.ends, flow.map(calls.double, range(3)).outcomes))
        await drain(app)
        assert await run.wait() == [0, "1 is broken", 4]


async def test_the_results_of_a_map_are_the_result_of_a_flow(app: Penstock) -> None:
    calls = Calls(app)
    async with app:
        flow = app.flow("flows")
        run = await flow.start(flow.map(calls.double, range(3)))
        await drain(app)
        assert await run.wait() == [0, 2, 4]


async def test_a_cancelled_flow_cancels_its_children(app: Penstock) -> None:
    calls = Calls(app)
    async with app:
        flow = app.flow("flows")
        nodes = flow.map(calls.double, range(3))
        run = await flow.start(nodes)
        assert await run.cancel()
        await drain(app)
        assert calls.made == []


async def test_a_value_that_is_not_there_yet_cannot_be_used(app: Penstock) -> None:
    calls = Calls(app)
    flow = app.flow("flows")
    with pytest.raises(TypeError, match="not there yet"):
        print(flow.add(calls.double, 1).result + 1)
    other = app.flow("flows")
    other.add(calls.double, flow.add(calls.double, 1).result)
    with pytest.raises(ValueError, match="same flow"):
        await other.start()
    assert await app.queues() == []


# durable code ------------------------------------------------------------------------------------


async def test_a_recorded_step_is_not_repeated(app: Penstock) -> None:
    """A step runs once though two runs fail after it; its key is the same in all runs."""
    made: list[str] = []
    keys: set[str] = set()

    @app.handler("orders", min_backoff=0, max_retries=5)
    async def order(payload: int, job: Job) -> list[int]:
        async def charge(amount: int) -> tuple[int, int]:
            made.append("charge")
            return amount, 1

        keys.add(job.key("charge"))
        paid = await job.step("charge", charge, payload)
        made.append("run")
        if made.count("run") < 3:
            raise RuntimeError("broken")
        return list(paid)

    async with app:
        await app.queue("orders").enqueue(7, id="a")
        await drain(app)
        assert await app.queue("orders").result("a") == [7, 1]
    assert made == ["charge", "run", "run", "run"]
    assert len(keys) == 1


async def test_a_sleep_holds_no_worker_and_counts_no_attempt(app: Penstock, clock: Clock) -> None:
    runs: list[int] = []

    @app.handler("orders")
    async def order(payload: None, job: Job) -> str:
        runs.append(job.attempt)
        await job.sleep("three days", 3 * DAY)
        return "done"

    async with app:
        queue = app.queue("orders")
        await queue.enqueue(None, id="a")
        await drain(app)
        status = await queue.status("a")
        assert status is not None
        assert status.state is State.SUSPENDED
        assert "sleeps until" in str(await queue.why("a"))
        clock.advance(3 * DAY - 1)
        await drain(app)
        assert runs == [1]
        clock.advance(1)
        await drain(app)
        assert await queue.result("a") == "done"
        assert runs == [1, 1]


async def test_signals_come_in_order_and_a_late_one_is_for_the_next_wait(app: Penstock, clock: Clock) -> None:
    @app.handler("orders")
    async def order(payload: None, job: Job) -> list[Any]:
        found: list[Any] = [await job.signal("packed", dict[str, int])]
        try:
            await job.signal("packed", timeout=60)
        except SignalTimeout:
            found.append("late")
        found.append(await job.signal("packed"))
        found.append((await job.any_signal("stop", "go")).name)
        return found

    async with app:
        queue = app.queue("orders")
        await queue.enqueue(None, id="a")
        assert await queue.signal("a", "packed", {"shelf": 4}) == "kept"
        await drain(app)
        assert "waits for signal 'packed' until" in str(await queue.why("a"))
        clock.advance(60)
        assert await queue.signal("a", "packed", 2) == "kept"
        await drain(app)
        assert await queue.signal("a", "go") == "delivered"
        await drain(app)
        assert await queue.result("a") == [{"shelf": 4}, "late", 2, "go"]
        assert await queue.signal("a", "go") == "finished"


async def test_a_child_is_called_and_its_failure_can_be_compensated(app: Penstock) -> None:
    calls = Calls(app)
    calls.broken = {2}
    made: list[str] = []

    @app.handler("orders")
    async def order(number: int, job: Job) -> Any:
        try:
            doubled = await job.call("double", calls.double, number)
        except JobFailed as error:
            await job.step("refund", made.append, "refund")
            return error.error.message
        return [doubled, *(await job.map("more", calls.double, [doubled, 10]))]

    async with app:
        queue = app.queue("orders")
        await queue.enqueue(5, id="a")
        await queue.enqueue(2, id="b")
        await drain(app)
        assert await queue.result("b") == "2 is broken"
        assert await queue.result("a") == [10, 20, 20]
        assert made == ["refund"]


async def test_a_retry_of_a_parent_runs_the_child_that_failed_it(app: Penstock) -> None:
    calls = Calls(app)
    calls.broken = {1}

    @app.handler("orders")
    async def order(number: int, job: Job) -> int:
        return await job.call("double", calls.double, number)

    async with app:
        queue = app.queue("orders")
        await queue.enqueue(1, id="a")
        await drain(app)
        with pytest.raises(JobFailed, match="1 is broken"):
            await queue.result("a")
        calls.broken.clear()
        assert await queue.retry("a") == 1
        await drain(app)
        assert await queue.result("a") == 2
        assert calls.made == [1, 1]


async def test_a_cursor_goes_on_where_the_last_run_ended(app: Penstock) -> None:
    rows: list[int] = []

    @app.handler("reindex", min_backoff=0)
    async def reindex(payload: None, job: Job) -> int:
        done = await job.cursor("rows", 0)
        for row in range(done.value, 6):
            rows.append(row)
            await done.set(row + 1)
            if row == 3 and rows.count(3) == 1:
                raise RuntimeError("broken")
        return done.value

    async with app:
        await app.queue("reindex").enqueue(None, id="a")
        await drain(app)
        assert await app.queue("reindex").result("a") == 6
    assert rows == [0, 1, 2, 3, 4, 5]


async def _swallow(job: Job) -> None:
    with suppress(BaseException):
        await job.sleep("nap", 1)


async def _twice(job: Job) -> None:
    await job.step("one", int)
    await job.step("one", int)


async def _together(job: Job) -> None:
    await asyncio.gather(job.step("one", asyncio.sleep, 0), job.step("two", asyncio.sleep, 0))


async def _too_large(job: Job) -> None:
    await job.step("one", str.upper, "x" * 2_000_000)


async def _too_many(job: Job) -> None:
    for number in range(4):
        await job.step(str(number), int)


async def _another_kind(job: Job) -> None:
    if job.attempt == 1:
        await job.step("one", int)
        raise RuntimeError("broken")
    await job.sleep("one", 1)


async def _raising(job: Job) -> None:
    app = Penstock("memory:")

    @app.task
    async def nothing() -> None: ...

    await job.call("nothing", nothing.options(id="a", on_conflict="raise"))


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        (_swallow, "PermanentError", "caught the suspension of 'nap'"),
        (_twice, "ValueError", "'one' is used twice"),
        (_together, "ValueError", "one durable call at a time"),
        (_too_large, "PermanentError", "the value of 'one' has .* bytes"),
        (_too_many, "JournalFull", "no room for"),
        (_another_kind, "PermanentError", "'one' was recorded as a step and is now a sleep"),
        (_raising, "ValueError", "on_conflict"),
    ],
)
async def test_a_wrong_use_fails_for_good_and_names_the_call(
    app: Penstock, body: Callable[[Job], Any], kind: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wrong uses of durable calls: the job fails at once, with an error that names the remedy."""
    monkeypatch.setattr("penstock.model.durable.MAX_CHECKPOINTS", 3)

    @app.handler("orders", min_backoff=0)
    async def order(payload: None, job: Job) -> None:
        await body(job)

    async with app:
        await app.queue("orders").enqueue(None, id="a")
        await drain(app)
        with pytest.raises(JobFailed, match=text) as failed:
            await app.queue("orders").result("a")
        assert (failed.value.error.type, failed.value.error.kind) == (kind, "permanent")


async def test_a_fresh_retry_runs_the_steps_again(app: Penstock) -> None:
    made: list[str] = []

    @app.handler("orders", max_retries=0)
    async def order(payload: None, job: Job) -> None:
        await job.step("one", made.append, "one")
        if len(made) < 2:
            raise RuntimeError("broken")

    async with app:
        queue = app.queue("orders")
        await queue.enqueue(None, id="a")
        await drain(app)
        assert await queue.retry("a", fresh=True) == 1
        await drain(app)
        assert made == ["one", "one"]
