"""Workers: each holds its own tasks, and those of a dead one are run by another."""

from __future__ import annotations

import asyncio

import pytest

from penstock import Entry, Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of, vanish
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


@pytest.mark.parametrize("end", ["stop", "release_all", "die"])
async def test_the_end_of_a_worker_leaves_others_alone(
    factory: AppFactory, app: Penstock, clock: Clock, end: str
) -> None:
    """When a worker stops, releases its tasks or dies, another's running task is untouched (WQ-D1, WQ-14)."""
    other = await factory.app()
    running: dict[str, Job] = {}
    gate = asyncio.Event()

    async def handle(payload: str, job: Job) -> str:
        running[payload] = job
        await gate.wait()
        return payload

    app.listen("q", handle, concurrency=1, retain="ttl")
    other.listen("q", handle, concurrency=1, retain="ttl")
    await app.queue("q").enqueue("mine", id="mine")
    async with Worker(app, id="A", lease=600):
        await eventually(lambda: "mine" in running)
        await app.queue("q").enqueue("other's", id="b")
        if end == "die":
            await vanish(app, lease=5)
            clock.advance(5)
            await app.storage.reap(["q"])
        else:
            worker = Worker(other, id="B", lease=600)
            async with worker:
                await eventually(lambda: "other's" in running)
                if end == "release_all":
                    await other.queue("q").pause()
                    assert await worker.release_all() == 1
                else:
                    await worker.stop(grace=0)
        mine = await status_of(app, "mine")
        assert (mine.state, mine.worker, mine.attempts) == (State.RUNNING, "A", 1)
        assert (await status_of(app, "b")).state is State.QUEUED
        gate.set()
        await app.queue("q").resume()
        await eventually(lambda: all_done(app, 2))
    assert running["mine"].attempt == 1


async def all_done(app: Penstock, count: int) -> bool:
    return (await app.queue("q").counts())[State.COMPLETED] == count


async def test_returned_tasks_stand_in_front(app: Penstock, clock: Clock) -> None:
    """Tasks of a worker that failed, died or released them run before those enqueued since (WQ-1, WQ-S9, WQ-D3)."""
    runs: list[str] = []
    app.listen("q", runs.append, concurrency=1)
    await app.queue("q").enqueue_many(["first", "second"])
    await vanish(app, lease=3, limit=2)
    await app.queue("q").enqueue("third")
    clock.advance(3)
    assert len(await app.storage.reap(["q"])) == 2
    await Worker(app).drain()
    assert runs == ["first", "second", "third"]


async def test_a_failing_task_is_tried_again_at_once(app: Penstock) -> None:
    """A failed task runs again without a delay, and without a limit unless one is given (WQ-13, WQ-D13)."""
    runs: dict[str, list[int]] = {"stubborn": [], "bounded": []}

    @app.handler("q")
    async def handle(payload: str, job: Job) -> None:
        runs[payload].append(job.attempt)
        if payload == "bounded" or job.attempt < 15:
            raise ValueError("again")

    await app.queue("q").enqueue("stubborn")
    await app.queue("q").enqueue("bounded", id="b", max_attempts=2)
    await Worker(app).drain()
    assert runs == {"stubborn": list(range(1, 16)), "bounded": [1, 2]}
    assert (await status_of(app, "b")).state is State.FAILED


async def test_recovered_tasks_wake_an_idle_worker(factory: AppFactory, app: Penstock, clock: Clock) -> None:
    """An idle worker runs the task of a dead one though nothing new is enqueued (WQ-2, WQ-20, WQ-D7)."""
    survivor = await factory.app()
    idle, ran = asyncio.Event(), asyncio.Event()
    survivor.on("idle")(lambda event: idle.set())
    survivor.listen("q", lambda payload: ran.set())
    await app.queue("q").enqueue("task", id="a")
    await vanish(app, lease=3)
    async with Worker(survivor):
        await idle.wait()
        clock.advance(3)
        await asyncio.wait_for(ran.wait(), 15)


async def test_released_tasks_wake_an_idle_worker(factory: AppFactory, app: Penstock) -> None:
    """A task that one worker releases is claimed by another that was idle (WQ-13, WQ-D7)."""
    survivor = await factory.app()
    idle, started, ran = asyncio.Event(), asyncio.Event(), asyncio.Event()
    survivor.on("idle")(lambda event: idle.set())
    survivor.listen("q", lambda payload: ran.set())

    @app.handler("q")
    async def hang(payload: str) -> None:
        started.set()
        await asyncio.Event().wait()

    await app.queue("q").enqueue("task")
    async with Worker(app) as worker:
        await started.wait()
        async with Worker(survivor):
            await idle.wait()
            await worker.stop(grace=0)
            await asyncio.wait_for(ran.wait(), 4)  # less than the slow poll, which is not what brings it


async def test_a_lost_task_emits_lease_lost(factory: AppFactory, app: Penstock, clock: Clock) -> None:
    """The worker emits lease_lost, and the outcome of its run is not recorded (WQ-8, WQ-18, WQ-D8)."""
    other = await factory.app()
    started, gate = asyncio.Event(), asyncio.Event()
    received: list[tuple[str, int]] = []
    for each in (app, other):
        for name in ("lease_lost", "completed"):
            each.on(name)(lambda event: received.append((event.name, event.attempt)))

    @app.handler("q", concurrency=1)
    async def wait(payload: str) -> None:
        started.set()
        await gate.wait()

    other.listen("q", lambda payload: None)
    await app.queue("q").enqueue("task", id="a")
    async with Worker(app, id="frozen", lease=600):
        await started.wait()
        while "completed" not in [name for name, _ in received]:  # it may renew just after the clock has moved
            clock.advance(600)
            await Worker(other, id="survivor").drain()
        gate.set()
        await eventually(lambda: ("lease_lost", 1) in received)
    assert [name for name, _ in received].count("completed") == 1


async def test_a_persistent_task_is_kept_by_one_worker(factory: AppFactory, app: Penstock) -> None:
    """A task that never ends runs on one worker at a time and moves to another when that one stops (WQ-3)."""
    other = await factory.app()
    keepers: list[str | None] = []

    for each, name in ((app, "A"), (other, "B")):

        async def keep(payload: str, name: str = name) -> None:
            keepers.append(name)
            await asyncio.Event().wait()

        each.listen("connections", keep)
        assert each.options("connections").timeout is None
    await app.queue("connections").enqueue("socket", id="socket")
    async with Worker(app, id="A") as first:
        await eventually(lambda: keepers == ["A"])
        async with Worker(other, id="B") as second:
            assert (await status_of(app, "socket", "connections")).worker == "A"
            await first.stop(grace=0)
            await eventually(lambda: keepers == ["A", "B"])
            status = await status_of(app, "socket", "connections")
            assert (status.state, status.worker, status.attempts) == (State.RUNNING, "B", 1)
            await second.stop(grace=0)


async def test_nothing_is_kept_of_a_finished_task(app: Penstock) -> None:
    """A finished task leaves no record; its event has the result, falsy ones included (WQ-1, WQ-S4, WQ-D17)."""
    results: list[object] = []
    app.on("completed")(lambda event: results.append(event.result))
    app.listen("q", lambda payload: payload, concurrency=1)
    await app.queue("q").enqueue_many([Entry(value, id=str(n)) for n, value in enumerate((0, "", None, False, "x"))])
    await Worker(app).drain()
    assert results == [0, "", None, False, "x"]
    assert await app.queues() == []


async def test_each_task_goes_to_one_worker(factory: AppFactory) -> None:
    """Three workers and thirty tasks: each task is run once, by one of them (WQ-1, WQ-D12)."""
    apps = [await factory.app() for _ in range(3)]
    runs: list[str] = []
    for each in apps:
        each.listen("q", runs.append)
    async with Worker(apps[0]), Worker(apps[1]), Worker(apps[2]):
        await apps[0].queue("q").enqueue_many([f"t{n}" for n in range(30)])
        await eventually(lambda: len(runs) == 30)
    assert len(set(runs)) == 30
    assert await apps[0].queues() == []


async def test_a_queue_may_be_called_like_an_event(app: Penstock) -> None:
    """Queues named error or debug, with colons or underscores, are queues like any other (WQ-D9, WQ-D17)."""
    names = ["error", "debug", "a:b", "a_b_cancel", "*"]
    received: list[str] = []
    app.on("completed")(lambda event: received.append(event.queue))
    for name in names:
        app.listen(name, lambda payload: None)
        await app.queue(name).enqueue("task")
    assert await app.queues() == sorted(names)
    await Worker(app).drain()
    assert sorted(received) == sorted(names)
