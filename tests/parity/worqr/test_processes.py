"""Reservations, the counterpart of Worqr's processes."""

from __future__ import annotations

import asyncio

import pytest

from penstock import LeaseLost, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of
from tests.support import eventually

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def waiting(app: Penstock) -> int:
    return (await app.queue("q").counts())[State.QUEUED]


async def test_reserve_complete_reserve_release(app: Penstock) -> None:
    """The first task is reserved and completed, the second released: two are left, in order (WQ-11, WQ-12, WQ-T5)."""
    queue = app.queue("q")
    await queue.enqueue_many(["one", "two", "three"])
    [process] = await queue.reserve()
    assert (process.payload, process.attempt) == ("one", 1)
    await process.complete()
    [process] = await queue.reserve()
    assert process.payload == "two"
    await process.release()
    assert await waiting(app) == 2
    [again] = await queue.reserve()
    assert (again.payload, again.attempt) == ("two", 1)
    await again.complete()
    [last] = await queue.reserve()
    await last.complete()
    assert await queue.peek() is None
    assert await queue.reserve() == []


async def test_equal_tasks_are_different_reservations(app: Penstock) -> None:
    """Two equal tasks are held and settled apart (WQ-4, WQ-11)."""
    queue = app.queue("q")
    await queue.enqueue_many(["same", "same"])
    first, second = await queue.reserve(limit=2)
    assert (first.payload, second.payload) == ("same", "same")
    assert first.id != second.id
    await first.complete()
    await second.release()
    assert await waiting(app) == 1


async def test_reserve_of_an_empty_queue_writes_nothing(app: Penstock) -> None:
    """A reserve of an empty queue returns None at once and leaves no record (WQ-11, WQ-D14)."""
    assert await app.queue("q").reserve() == []
    assert await app.queues() == []


async def test_enqueue_wakes_a_waiting_reserve(factory: AppFactory, app: Penstock) -> None:
    """A reserve that waits is answered when a task is enqueued elsewhere, without polling (WQ-9, WQ-T6)."""
    other = await factory.app()
    pulling = asyncio.create_task(app.queue("q").reserve(wait=4))  # less than the slow poll
    await asyncio.sleep(0)
    await other.queue("q").enqueue("task")
    [process] = await pulling
    assert process.payload == "task"
    await process.complete()


async def test_a_completed_reservation_emits_its_result(app: Penstock) -> None:
    """completed has the task id, worker and result, and nothing else is kept (WQ-S4, WQ-12)."""
    received: list[tuple[str, object, bool]] = []
    app.on("completed")(lambda event: received.append((event.id, event.result, event.worker is not None)))
    await app.queue("q").enqueue("task", id="a")
    [process] = await app.queue("q").reserve()
    assert await process.complete(0) is State.COMPLETED
    assert received == [("a", 0, True)]
    assert await app.queue("q").status("a") is None


async def test_a_lost_reservation_cannot_be_completed(factory: AppFactory, app: Penstock, clock: Clock) -> None:
    """Completing a reservation whose lease expired raises, and the task stays the other's (WQ-18, WQ-D8)."""
    other = await factory.app()
    ends: list[str] = []
    app.on("completed")(lambda event: ends.append(event.id))
    await app.queue("q").enqueue("task", id="a")
    [stale] = await app.queue("q").reserve(lease=600)
    clock.advance(600)
    [fresh] = await other.queue("q").reserve()
    assert (fresh.id, fresh.stalls) == ("a", 1)
    with pytest.raises(LeaseLost):
        await stale.complete("stale")
    assert ends == []
    assert (await status_of(app)).state is State.RUNNING
    await fresh.complete()


async def test_closing_an_app_releases_its_reservations(factory: AppFactory, app: Penstock) -> None:
    """Closing the app releases all that it reserved, and nothing of others (WQ-14, WQ-20, WQ-D1, WQ-T12)."""
    leaving = await factory.app() if factory.url != "memory:" else Penstock(storage=app.storage, preset="worqr")
    await app.queue("q").enqueue_many(["mine", "theirs"])
    [mine] = await app.queue("q").reserve()
    [theirs] = await leaving.queue("q").reserve()
    assert (mine.payload, theirs.payload) == ("mine", "theirs")
    await leaving.reservations.close()
    assert await waiting(app) == 1
    assert (await status_of(app, mine.id)).state is State.RUNNING
    await mine.complete()
    [back] = await app.queue("q").reserve()
    assert (back.payload, back.attempt) == ("theirs", 1)
    await back.complete()


async def test_a_reservation_can_fail_its_task(app: Penstock) -> None:
    """A failed task is the next one again, until its last attempt (WQ-13, WQ-D3, WQ-D13)."""
    queue = app.queue("q")
    await queue.enqueue("bad", id="a", max_attempts=2)
    await queue.enqueue("good", id="b")
    [process] = await queue.reserve()
    await process.fail("no use")
    [process] = await queue.reserve()
    assert (process.id, process.attempt, process.retries) == ("a", 2, 1)
    assert await process.fail("no use") is State.FAILED
    [process] = await queue.reserve()
    assert process.id == "b"
    await process.complete()


async def test_all_equal_tasks_are_cancelled(app: Penstock) -> None:
    """cancel_matching cancels all waiting tasks with that payload and sends running ones a request (WQ-7, WQ-T8)."""
    received: list[str] = []
    app.on("cancelled")(lambda event: received.append(event.id))
    queue = app.queue("q")
    for id, task in (("held", "bad"), ("1", "good"), ("2", "bad"), ("3", "bad")):
        await queue.enqueue(task, id=id)
    [held] = await queue.reserve()
    found = await queue.cancel_matching("bad")
    assert sorted(found) == ["2", "3", "held"]
    await held.extend()
    assert held.cancelled
    await held.fail("stopped")
    assert sorted(received) == ["2", "3", "held"]
    assert [status.payload for status in await queue.find()] == ["good"]


async def test_running_tasks_can_be_looked_up(app: Penstock) -> None:
    """The running tasks with some payload are found among those that run, with their worker (WQ-S3)."""
    queue = app.queue("q")
    await queue.enqueue_many(["a", "b", "a"])
    held = await queue.reserve(limit=3)
    running = [status for status in await queue.find("running") if status.payload == "a"]
    assert [status.id for status in running] == [each.id for each in held if each.payload == "a"]
    assert all(status.worker for status in running)
    for each in held:
        await each.complete()


async def test_workers_list_the_queues_they_serve(app: Penstock) -> None:
    """A worker is on the list while it works, with its queues, and off it afterwards (WQ-8, WQ-15, WQ-19, WQ-T2)."""
    for name in ("one", "two", "three"):
        app.listen(name, lambda payload: None)
    assert await app.workers() == []
    async with Worker(app, id="w:1", queues=["one", "two"]):
        await eventually(lambda: listed(app))
        [info] = await app.workers()
        assert (info.id, sorted(info.queues)) == ("w:1", ["one", "two"])
    assert await app.workers() == []


async def listed(app: Penstock) -> bool:
    return bool(await app.workers())


@pytest.mark.only("memory")  # no call reaches a storage
async def test_a_worker_of_a_queue_without_a_handler_is_refused(app: Penstock) -> None:
    """A worker for a queue without a handler is refused by name (WQ-S5, WQ-T3)."""
    app.listen("q", lambda payload: None)
    with pytest.raises(ValueError, match="'unknown' has no handler"):
        await Worker(app, queues=["unknown"]).drain()


async def test_enqueue_cancel_and_delete_events_reach_other_processes(factory: AppFactory, app: Penstock) -> None:
    """Another process gets the events of new tasks, cancels and a deleted queue (WQ-9, WQ-T6, WQ-T8, WQ-T9)."""
    other = await factory.app()
    names = ("enqueued", "cancelled", "queue_deleted")
    async with other.events(names, queue="q") as stream:
        queue = app.queue("q")
        await queue.enqueue("task", id="a")
        await app.queue("elsewhere").enqueue("task", id="b")
        await queue.cancel("a")
        await queue.delete()
        async with asyncio.timeout(10):
            received = [await anext(stream) for _ in range(3)]
    assert [(event.name, event.id) for event in received] == [
        ("enqueued", "a"),
        ("cancelled", "a"),
        ("queue_deleted", ""),
    ]
