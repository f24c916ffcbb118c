"""Pushing, deleting and keeping jobs, and their events, as Queue Farm's users know them."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import pytest

from penstock import Event, InvalidPayload, Job, Penstock, State, Worker
from tests.parity.support import FEW, count, status_of
from tests.support import eventually

pytestmark = pytest.mark.only(*FEW)


@pytest.mark.only("memory")  # no call reaches a storage
async def test_the_defaults_are_the_documented_ones(app: Penstock) -> None:
    """Three attempts, a timeout of 30 s, concurrency 1 and batches of 1, unless given (QF-T1, QF-6, QF-7)."""
    app.listen("q", lambda payload: None)
    app.listen("r", lambda payloads: None, max_attempts=5, timeout=1, concurrency=7, batch_size=3)
    names = ("max_attempts", "timeout", "concurrency", "batch_size", "min_backoff", "retain")
    assert [getattr(app.handlers["q"].options, name) for name in names] == [3, 30, 1, 1, 0, "none"]
    assert [getattr(app.handlers["r"].options, name) for name in names] == [5, 1, 7, 3, 0, "none"]


async def test_a_push_is_stored_whole(app: Penstock) -> None:
    """A pushed job has an id, its data and its queue, which is listed from then on (QF-11, QF-39, QF-T2)."""
    answer = await app.queue("q").enqueue({"some": "task"}, max_attempts=7, timeout=3)
    status = await status_of(app, answer.id)
    assert (status.payload, status.state, status.group, status.attempts) == ({"some": "task"}, State.QUEUED, "q", 0)
    assert await app.queues() == ["q"]


async def test_a_deleted_job_is_gone(app: Penstock) -> None:
    """Deleting the last of two jobs, or the only one, is true; an unknown id changes nothing (QF-12, QF-T3)."""
    queue = app.queue("q")
    first, second = await queue.enqueue_many(["first", "second"])
    assert not await queue.cancel("unknown")
    assert await queue.cancel(second.id)
    assert [status.id for status in await queue.find()] == [first.id]
    assert await queue.cancel(first.id)
    assert await app.queues() == []
    assert not await queue.cancel(first.id)


async def test_a_performed_job_cannot_be_deleted(app: Penstock) -> None:
    """Deleting a job that was performed is false (QF-12)."""
    app.listen("q", lambda payload: None)
    answer = await app.queue("q").enqueue(1)
    await Worker(app).drain()
    assert not await app.queue("q").cancel(answer.id)


async def test_deleting_a_running_job_makes_it_the_last_run(app: Penstock) -> None:
    """A running job that is deleted finishes its run and is not retried; the answer is false (QF-S9)."""
    started, gate, runs = asyncio.Event(), asyncio.Event(), list[int]()

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        runs.append(job.attempt)
        started.set()
        await gate.wait()
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    working = asyncio.create_task(Worker(app).drain())
    await started.wait()
    assert not await app.queue("q").cancel("a")
    gate.set()
    await working
    assert (runs, await app.queue("q").status("a")) == ([1], None)


async def test_a_deleted_job_that_is_kept_is_not_retried(app: Penstock) -> None:
    """With finished jobs kept, one deleted between two attempts is kept as cancelled and not run again (QF-D6)."""
    runs: list[int] = []

    @app.handler("q", retain="forever", min_backoff=60)
    async def handle(payload: int, job: Job) -> None:
        runs.append(job.attempt)
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert await app.queue("q").cancel("a")
    await app.queue("q").enqueue(2, id="b", max_attempts=1)
    await Worker(app).drain()
    assert (runs, (await status_of(app)).state) == ([1, 1], State.CANCELLED)


async def test_nothing_is_left_of_a_finished_job(app: Penstock) -> None:
    """One job is one call, one start and one finish, and then an idle worker; no record stays (QF-T4, QF-T13)."""
    received: list[Event] = []
    app.on("*")(received.append)
    ran: list[Any] = []
    app.listen("q", ran.append)
    async with Worker(app, id="w"):
        await app.queue("q").enqueue({"some": "task"}, id="a")
        await eventually(lambda: {"completed", "idle"} <= {event.name for event in received})
    names = [event.name for event in received if event.name != "idle"]
    # The worker may begin before the producer gets the answer to its enqueue.
    assert (ran, sorted(names)) == ([{"some": "task"}], ["completed", "enqueued", "started"])
    assert [(event.queue, event.id) for event in received if event.name != "idle"] == [("q", "a")] * 3
    assert await app.queues() == []


async def test_jobs_can_be_kept(app: Penstock) -> None:
    """Finished jobs are kept on request and listed by their state (QF-5, QF-S6, QF-T15)."""

    @app.handler("q", retain="forever", max_attempts=1)
    async def handle(payload: str) -> None:
        if payload == "bad":
            raise ValueError("no")

    for payload in ("good", "bad", "deleted"):
        await app.queue("q").enqueue(payload, id=payload)
    await app.queue("q").cancel("deleted")
    await Worker(app).drain()
    ends = {str(state): [status.id for status in await app.queue("q").find(state)] for state in list(State)[-3:]}
    assert ends == {"completed": ["good"], "failed": ["bad"], "cancelled": ["deleted"]}


@pytest.mark.parametrize("value", [None, "", 0, False, [], {}])
async def test_an_empty_value_is_a_job(app: Penstock, value: Any) -> None:
    """None and every empty value run like any other; values without a JSON form are refused (QF-D7, QF-D16)."""
    ran: list[Any] = []
    app.listen("q", ran.append)
    await app.queue("q").enqueue(value)
    with pytest.raises(InvalidPayload):
        await app.queue("q").enqueue(object())
    await Worker(app).drain()
    assert ran == [value]


async def test_the_events_of_a_failing_job(app: Penstock) -> None:
    """Each failed attempt and the last one emit an event with queue, id, attempt and error (QF-9, QF-19…23, QF-D8)."""
    received: list[tuple[str, str, str, int, str | None]] = []

    @app.on("*")
    def record(event: Event) -> None:
        received.append((event.name, event.queue, event.id, event.attempt, event.error and event.error.message))

    @app.handler("q", max_attempts=2)
    async def handle(payload: int) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert [each for each in received if each[2]] == [
        ("enqueued", "q", "a", 0, None),
        ("started", "q", "a", 1, None),
        ("retrying", "q", "a", 1, "no"),
        ("started", "q", "a", 2, None),
        ("failed", "q", "a", 2, "no"),
    ]


async def test_invalid_data_is_emitted_with_its_id(app: Penstock) -> None:
    """A job whose data cannot be decoded is not run, and invalid_data has its queue and id (QF-24, QF-D8)."""
    received: list[tuple[str, str]] = []
    ran: list[int] = []
    app.on("invalid_data")(lambda event: received.append((event.queue, event.id)))

    @app.handler("q")
    async def handle(payload: int) -> None:
        ran.append(payload)

    await app.queue("q").enqueue("no number", id="a")
    await app.queue("q").enqueue(2, id="b")
    await Worker(app).drain()
    assert (received, ran) == ([("q", "a")], [2])
    assert (await status_of(app)).payload == "no number"


async def test_a_delete_emits_cancelled(app: Penstock) -> None:
    """A deleted job emits cancelled with queue and id; a delete that changed nothing emits no event (QF-10)."""
    received: list[tuple[str, str]] = []
    app.on("cancelled")(lambda event: received.append((event.queue, event.id)))
    await app.queue("q").enqueue(1, id="a")
    await app.queue("q").cancel("a")
    await app.queue("q").cancel("a")
    assert received == [("q", "a")]


@pytest.mark.only("memory")  # no call reaches a storage
def test_worker_ids_are_unique(app: Penstock) -> None:
    """A worker's id begins with its host and no other has it; one may also be given (QF-8, QF-D18)."""
    ids = {Worker(app).id for _ in range(1000)}
    assert len(ids) == 1000
    assert all(id.startswith(f"{socket.gethostname()}-") for id in ids)
    assert Worker(app, id="mine").id == "mine"


async def test_the_attempt_names_its_worker(app: Penstock) -> None:
    """While a job runs its record has the number of attempts and the worker (QF-35, QF-43)."""
    seen: list[tuple[int, str | None, State]] = []

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        status = await status_of(app)
        seen.append((status.attempts, status.worker, status.state))
        if job.attempt == 1:
            raise ValueError("once")

    await app.queue("q").enqueue(1, id="a")
    await Worker(app, id="w").drain()
    assert seen == [(1, "w", State.RUNNING), (2, "w", State.RUNNING)]


async def test_events_are_logged_until_switched_off(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A logger gets a line for each event, without payloads, until it is switched off (QF-30…33, QF-S11, QF-T20)."""
    caplog.set_level(logging.DEBUG, "farm")
    log = app.log_events("farm")

    @app.handler("q", max_attempts=2)
    async def handle(payload: str) -> None:
        raise ValueError("no")

    await app.queue("q").enqueue("secret", id="a")
    await Worker(app).drain()
    lines = [record for record in caplog.records if record.name == "farm"]
    assert [line.getMessage().split()[0] for line in lines] == [
        "enqueued", "started", "retrying", "started", "failed",
    ]  # fmt: skip
    assert all("secret" not in line.getMessage() and "'a'" in line.getMessage() for line in lines)
    caplog.clear()
    log.off()
    await app.queue("q").enqueue("secret", id="b")
    assert [record for record in caplog.records if record.name == "farm"] == []
    log.on()
    await app.queue("q").cancel("b")
    assert [record.getMessage().split()[0] for record in caplog.records if record.name == "farm"] == ["cancelled"]
    log.off()


async def test_some_events_are_not_logged(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """idle is not logged unless asked for, and any event can be left out or given a level (QF-31, QF-S11)."""
    caplog.set_level(logging.DEBUG, "farm")
    app.listen("q", lambda payload: None)
    with app.log_events("farm", exclude="started", level={"idle": logging.DEBUG, "completed": "WARNING"}):
        async with Worker(app):
            await app.queue("q").enqueue(1)
            await eventually(lambda: {"completed", "idle"} <= {r.getMessage().split()[0] for r in caplog.records})
    emitted = [(record.getMessage().split()[0], record.levelname) for record in caplog.records if record.name == "farm"]
    assert ("completed", "WARNING") in emitted
    assert "started" not in {name for name, _ in emitted}
    assert await count(app, State.QUEUED) == 0
