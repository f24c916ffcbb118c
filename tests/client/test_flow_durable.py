"""Durable code: what later runs repeat, how they go on, and how they wait."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import ChildCounts, Ended, Job, JobFailed, Penstock, Signal, State, Worker
from penstock.testing import Clock
from tests.client.flow_tasks import Calls, drain

#: The storages that have flows.
pytestmark = pytest.mark.only("memory", "sqlite")


async def test_a_failing_step_repeats_only_itself(app: Penstock) -> None:
    """A step that fails twice: the earlier one runs once, it three times."""
    made: list[str] = []

    def second() -> None:
        made.append("second")
        if made.count("second") < 3:
            raise ValueError("broken")

    @app.handler("q", min_backoff=0, max_retries=3)
    async def handle(payload: None, job: Job) -> None:
        await job.step("first", made.append, "first")
        await job.step("second", second)

    await app.queue("q").enqueue(None, id="a")
    await drain(app)
    assert made == ["first", "second", "second", "second"]


async def test_new_code_goes_on_with_the_journal_of_the_old(app: Penstock) -> None:
    """A step added before and one removed: recorded ones are not repeated, and the new one runs."""
    made: list[str] = []
    new = False

    @app.handler("q", max_retries=0)
    async def handle(payload: None, job: Job) -> None:
        if new:
            await job.step("added", made.append, "added")
        else:
            await job.step("removed", made.append, "removed")
        await job.step("kept", made.append, "kept")
        if not new:
            raise RuntimeError("broken")

    await app.queue("q").enqueue(None, id="a")
    await drain(app)
    new = True
    await app.queue("q").retry("a")
    await drain(app)
    assert made == ["removed", "kept", "added"]
    assert [(each.name, each.kind) for each in await app.queue("q").journal("a")] == [
        ("removed", "step"), ("kept", "step"), ("added", "step"),
    ]  # fmt: skip


async def test_gather_runs_children_side_by_side(app: Penstock) -> None:
    """`job.gather` gives results in their order, or with outcomes how each ended; headers are handed on."""
    calls = Calls(app)
    calls.broken = {3}

    @app.handler("q")
    async def handle(payload: None, job: Job) -> Any:
        number, text = await job.gather("both", calls.double.entry(1), calls.total.entry([1, 2]))
        one, bad = await job.gather("ends", calls.double.entry(2), calls.double.entry(3), outcomes=True)
        assert isinstance(bad, Ended)
        assert bad.error is not None
        return [number, text, one.value, bad.error.message, await job.gather("none")]

    queue = app.queue("q")
    await queue.enqueue(None, id="a", headers={"who": "me"})
    await Worker(app, queues=["q"]).drain()
    status = await queue.status("a")
    assert status is not None
    assert status.state is State.SUSPENDED
    assert len(status.waits_for) == 2
    assert status.children == ChildCounts(total=2)
    [child] = await app.queue("double").find()
    assert child.headers == {"who": "me"}
    assert child.parent is not None
    assert child.parent.id == "a"
    await drain(app)
    assert await queue.result("a") == [2, "3", 4, "3 is broken", []]
    states = [each.state for each in await queue.children("a")]
    assert states == ["completed", "completed", "completed", "failed"]
    assert [each.value for each in await queue.journal("a")] == [2, 2, 0]


async def test_a_map_of_many_children_is_stored_in_parts(app: Penstock) -> None:
    """2,300 children of one call: all results in order, and one attempt."""
    calls = Calls(app)

    @app.handler("q")
    async def handle(payload: None, job: Job) -> int:
        return sum(await job.map("all", calls.double, range(2300)))

    await app.queue("q").enqueue(None, id="a")
    await drain(app)
    assert await app.queue("q").result("a") == sum(range(2300)) * 2
    assert sorted(calls.made) == list(range(2300))
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.attempts == 1


async def test_children_that_are_too_deep_are_refused(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that calls itself without end fails for good at the largest depth."""
    monkeypatch.setattr("penstock.model.durable_children.MAX_DEPTH", 3)
    deepest = 0

    @app.task(max_retries=0)
    async def deeper(level: int, job: Job | None = None) -> None:
        nonlocal deepest
        deepest = max(deepest, level)
        assert job is not None
        await job.call("next", deeper, level + 1)

    await deeper.options(id="a").enqueue(0)
    await drain(app)
    with pytest.raises(JobFailed, match="at most 3"):
        await deeper.result("a")
    assert deepest == 3


async def test_signals_are_read_in_order_also_over_a_retry(app: Penstock) -> None:
    """Signals 1, 2, 3 and a loop of waits: in order, each once, although a run fails in between."""
    failed = False

    @app.handler("q", min_backoff=0)
    async def handle(payload: None, job: Job) -> list[Any]:
        nonlocal failed
        values: list[int] = []
        for number in range(3):
            values.append(await job.signal("n", int))
            if number == 1 and not failed:
                failed = True
                raise RuntimeError("broken")
        return values

    queue = app.queue("q")
    await queue.enqueue(None, id="a")
    for number in (1, 2, 3):
        answer = await queue.signal("a", "n", number)
        assert answer
        assert answer.status == "kept"
    await drain(app)
    assert await queue.result("a") == [1, 2, 3]
    assert [each.value for each in await queue.journal("a")] == [Signal("n", 1), Signal("n", 2), Signal("n", 3)]
    for id, word in (("a", "finished"), ("b", "not_found")):
        answer = await queue.signal(id, "n")
        assert not answer
        assert answer == word


async def test_a_sleeping_job_holds_its_ordered_group(app: Penstock, clock: Clock) -> None:
    """A grouped job sleeps: the next of its group waits, other groups run."""
    made: list[str] = []

    @app.handler("q")
    async def handle(payload: str, job: Job) -> None:
        if payload == "first":
            await job.sleep("nap", 60)
        made.append(payload)

    queue = app.queue("q")
    await queue.enqueue("first", group="g", id="a")
    await queue.enqueue("second", group="g")
    await queue.enqueue("other", group="h")
    await drain(app)
    assert made == ["other"]
    status = await queue.status("a")
    assert status is not None
    assert status.wakes_at is not None
    clock.advance(60)
    await drain(app)
    assert made == ["other", "first", "second"]
    await queue.delete()


async def test_a_cancelled_wait_can_be_compensated(app: Penstock) -> None:
    """Cancel with `running="signal"` of a suspended job: its await raises, and steps run before it ends."""
    made: list[str] = []

    @app.handler("q")
    async def handle(payload: None, job: Job) -> None:
        try:
            await job.signal("never")
        finally:
            await job.step("undo", made.append, "undo")

    queue = app.queue("q")
    await queue.enqueue(None, id="a")
    await drain(app)
    assert (await queue.cancel("a", running="signal")).requested
    await drain(app)
    assert made == ["undo"]
    await queue.delete()


async def test_a_cursor_leaves_at_half_of_the_timeout(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the timeout is over: the run ends at the next move, and another goes on for free."""
    rows: list[int] = []
    runs: list[int] = []

    @app.handler("q", timeout=1000)
    async def handle(payload: None, job: Job) -> int:
        runs.append(job.attempt)
        done = await job.cursor("rows", 0, every=1000)
        for row in range(done.value, 6):
            rows.append(row)
            if row == 2:
                ahead.append(600)
            await done.set(row + 1)
        return done.value

    ahead: list[int] = []
    monkeypatch.setattr(
        "penstock.worker.job_services.WorkerJobServices.now", lambda self: self._loop.time() + ahead_of()
    )

    def ahead_of() -> int:
        return ahead.pop() if ahead else 0

    await app.queue("q").enqueue(None, id="a")
    await drain(app)
    assert await app.queue("q").result("a") == 6
    assert rows == [0, 1, 2, 3, 4, 5]
    assert runs == [1, 1]


async def test_a_cursor_leaves_when_its_worker_stops(app: Penstock) -> None:
    """The worker stops: the run ends at the next move of its cursor, and another worker goes on, no row twice."""
    rows: list[int] = []
    begun = asyncio.Event()

    @app.handler("q", timeout=1000)
    async def handle(payload: None, job: Job) -> int:
        done = await job.cursor("rows", 0, every=1000)
        for row in range(done.value, 1000):
            rows.append(row)
            begun.set()
            await asyncio.sleep(0)
            await done.set(row + 1)
            if len(rows) == 20:
                return job.attempt
            if not job.cancelled and len(rows) == 10:
                await asyncio.sleep(0.01)
        raise AssertionError

    await app.queue("q").enqueue(None, id="a")
    async with Worker(app) as worker:
        await begun.wait()
        await worker.stop(30)
    stopped = len(rows)
    await drain(app)
    assert await app.queue("q").result("a") == 1
    assert rows == list(range(20))
    assert stopped <= 20


async def test_a_cancelled_cursor_loop_ends(app: Penstock) -> None:
    """A cancel request: the loop ends at the next move of the cursor, as cancelled."""
    rows: list[int] = []

    @app.handler("q", retain="forever")
    async def handle(payload: None, job: Job) -> None:
        done = await job.cursor("rows", 0)
        await app.queue("q").cancel("a", running="signal")
        await job.cancelled
        for row in range(10):
            rows.append(row)
            await done.set(row)

    await app.queue("q").enqueue(None, id="a")
    await drain(app)
    assert rows == [0]
    assert (await app.queue("q").counts())[State.CANCELLED] == 1
