"""Workers: attempts, order, concurrency, several workers, starting and stopping."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Entry, Event, Job, Penstock, State, Worker
from tests.parity.job_queue.app_factory import AppFactory, status_of
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_three_attempts_in_all_and_at_once(app: Penstock) -> None:
    """The limit of three counts every run, the first is attempt 1, and retries have no delay (PJ-28, PJ-S9, PJ-T13)."""
    runs: dict[str, list[int]] = {"good": [], "bad": []}

    @app.handler("q")
    async def handle(payload: str, job: Job) -> str:
        runs[payload].append(job.attempt)
        if payload == "bad" or job.attempt < 3:
            raise ValueError("no")
        return "at last"

    await app.queue("q").enqueue("good", id="a")
    await app.queue("q").enqueue("bad", id="b")
    await Worker(app).drain()
    assert runs == {"good": [1, 2, 3], "bad": [1, 2, 3]}
    assert await app.queue("q").result("a") == "at last"
    assert (await status_of(app, "b")).state is State.FAILED


async def test_a_jobs_own_limit_and_the_failed_event(app: Penstock) -> None:
    """A job with max_attempts=2 fails at the second run, and failed is emitted once, with the error (PJ-33, PJ-T13)."""
    received: list[Event] = []
    app.on("retrying")(received.append)
    app.on("failed")(received.append)

    @app.handler("q")
    async def handle(payload: int) -> None:
        raise ValueError("never")

    await app.queue("q").enqueue(1, id="a", max_attempts=2)
    await Worker(app).drain()
    emitted = [(e.name, e.id, e.attempt, e.error and e.error.message) for e in received]
    assert emitted == [("retrying", "a", 1, "never"), ("failed", "a", 2, "never")]


async def test_a_retry_goes_to_the_front(app: Penstock) -> None:
    """A failed job runs again before those enqueued after it, on every storage (PJ-S2)."""
    queue = app.queue("q")
    await queue.enqueue_many(["first", "second", "third"])
    taken: list[str] = []
    for _ in range(4):
        [held] = await queue.reserve()
        taken.append(held.payload)
        await (held.fail("once more") if len(taken) == 1 else held.complete())
    assert taken == ["first", "first", "second", "third"]


async def test_concurrency_is_one_unless_given(factory: AppFactory) -> None:
    """The concurrency is 1 by default and the given number otherwise; every job runs (PJ-26, PJ-T18)."""
    for wanted in (1, 3):
        app = await factory.app()
        most = active = 0

        async def handle(payload: int) -> None:
            nonlocal most, active
            active += 1
            most = max(most, active)
            for _ in range(3):
                await asyncio.sleep(0)
            active -= 1

        queue = f"q{wanted}"
        app.listen(queue, handle, **({} if wanted == 1 else {"concurrency": wanted}))
        await app.queue(queue).enqueue_many(range(10))
        await Worker(app, queues=[queue]).drain()
        assert most == wanted
        assert (await app.queue(queue).counts())[State.COMPLETED] == 10


async def test_two_workers_share_the_jobs_of_a_producer(factory: AppFactory) -> None:
    """A producer without handlers and two consumers: ten jobs, each run exactly once (PJ-1, PJ-T19)."""
    producer = await factory.app()
    runs: list[int] = []
    both = asyncio.Barrier(2)

    async def handle(payload: int) -> int:
        runs.append(payload)
        if payload < 2:
            await both.wait()
        return payload

    consumers = [await factory.app() for _ in range(2)]
    for each in consumers:
        each.listen("q", handle)
    async with Worker(consumers[0], id="w1"), Worker(consumers[1], id="w2"):
        await producer.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(10)])
        await eventually(lambda: all_done(producer, 10))
    assert sorted(runs) == list(range(10))
    workers = {(await status_of(producer, str(n))).worker for n in range(10)}
    assert workers == {"w1", "w2"}


async def all_done(app: Penstock, count: int, queue: str = "q") -> bool:
    return (await app.queue(queue).counts())[State.COMPLETED] == count


async def test_a_worker_has_an_id_of_its_own(app: Penstock) -> None:
    """Ids are generated, all different, unless one is given, and are shown with the jobs (PJ-25, PJ-40)."""
    app.listen("q", lambda payload: None)
    assert len({Worker(app).id for _ in range(50)}) == 50
    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="pod:7").drain()
    assert (await status_of(app)).worker == "pod:7"


async def test_stop_without_grace_releases_the_job(factory: AppFactory) -> None:
    """A job that outlives the grace is queued at once, uncharged, and another worker runs it (PJ-47, PJ-D1)."""
    app, other = await factory.app(), await factory.app()
    started = asyncio.Event()

    @app.handler("q")
    async def hang(payload: int) -> None:
        started.set()
        await asyncio.Event().wait()

    other.listen("q", lambda payload, job: job.attempt)
    await app.queue("q").enqueue(1, id="a")
    async with Worker(app) as worker:
        await started.wait()
        await worker.stop(grace=0)
    status = await status_of(app)
    assert (status.state, status.attempts, status.worker) == (State.QUEUED, 0, None)
    assert (await app.queue("q").enqueue(1, id="a")).state is State.QUEUED
    await Worker(other).drain()
    assert await other.queue("q").result("a") == 1


async def test_a_stopped_consumer_takes_nothing_more(factory: AppFactory) -> None:
    """Jobs enqueued right after a consumer stopped stay queued for other workers (PJ-D2)."""
    app, other = await factory.app(), await factory.app()
    idle = asyncio.Event()
    app.on("idle")(lambda event: idle.set())
    app.listen("q", lambda payload: "stopped")
    other.listen("q", lambda payload: "other")
    async with Worker(app):
        await idle.wait()
    await other.queue("q").enqueue(1, id="a")
    status = await status_of(other)
    assert (status.state, status.attempts) == (State.QUEUED, 0)
    await Worker(other).drain()
    assert await other.queue("q").result("a") == "other"


async def test_an_idle_queue_does_not_delay_another(app: Penstock) -> None:
    """One worker waits for all of its queues, so a job on either starts at once (PJ-D22)."""
    ran: dict[str, asyncio.Event] = {name: asyncio.Event() for name in "ab"}
    idle = asyncio.Event()
    app.on("idle")(lambda event: idle.set())

    async def handle(payload: str) -> None:
        ran[payload].set()

    for name in "ab":
        app.listen(name, handle)
    async with Worker(app), asyncio.timeout(4):  # less than the slow poll, which is not what brings them
        await idle.wait()
        for name in "ba":
            await app.queue(name).enqueue(name)
            await ran[name].wait()


async def test_queues_are_separate(app: Penstock) -> None:
    """Named queues on one storage keep jobs, duplicates, results and status apart (PJ-S10, PJ-T24)."""
    for name in ("one", "two"):
        app.listen(name, lambda payload, job: [job.queue, payload])
    one, two = app.queue("one"), app.queue("two")
    assert [(await queue.enqueue(n, id="a")).status for n, queue in enumerate((one, two))] == ["queued"] * 2
    await Worker(app, queues=["one"]).drain()
    assert ((await status_of(app, queue="one")).state, (await status_of(app, queue="two")).state) == (
        State.COMPLETED,
        State.QUEUED,
    )
    assert (await two.enqueue(9, id="a")).status == "duplicate"
    await Worker(app, queues=["two"]).drain()
    assert [await queue.result("a") for queue in (one, two)] == [["one", 0], ["two", 1]]


async def test_a_worker_may_start_and_stop_repeatedly(app: Penstock) -> None:
    """Each start continues after the last stop, and a second stop changes nothing (PJ-T20, PJ-S13)."""
    results: list[Any] = []
    app.listen("q", lambda payload: payload)
    app.on("completed")(lambda event: results.append(event.result))
    worker = Worker(app)
    for n in range(3):
        await app.queue("q").enqueue(n)
        async with worker:
            await eventually(lambda n=n: len(results) == n + 1)
        await worker.stop()
    assert results == [0, 1, 2]


async def test_a_running_job_is_not_cancelled(app: Penstock) -> None:
    """cancel answers running, completed or not_found, and changes nothing then (PJ-35, PJ-44, PJ-T14)."""
    answers: list[tuple[str, bool]] = []

    @app.handler("q")
    async def handle(payload: int, job: Job) -> int:
        answer = await app.queue("q").cancel(job.id)
        answers.append((str(answer.status), bool(answer)))
        return payload

    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    await queue.enqueue(2, id="b")
    assert (await queue.cancel("b")).status == "cancelled"
    await Worker(app).drain()
    assert answers == [("running", False)]
    assert [(await queue.cancel(id)).status for id in ("a", "nobody")] == ["completed", "not_found"]
    assert await queue.result("a") == 1


async def test_a_retrying_job_can_be_cancelled_and_a_failed_one_is_free(app: Penstock) -> None:
    """A retrying job is cancelled; a failed one answers failed, and its id needs no cancel (PJ-S14)."""
    runs: list[str] = []

    @app.handler("q", min_backoff=60, max_backoff=60)
    async def handle(payload: int, job: Job) -> None:
        runs.append(job.id)
        raise ValueError("no")

    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    await queue.enqueue(1, id="b", max_attempts=1)
    await Worker(app).drain()
    assert (await queue.cancel("a")).status == "cancelled"
    answer = await queue.cancel("b")
    assert (answer.status, bool(answer)) == ("failed", False)
    assert (await queue.enqueue(2, id="b")).status == "queued"
    assert runs == ["a", "b"]
