"""enqueue as job-queue's users know it: states, duplicates, cached results, and ids that are free again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Job, Penstock, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory, status_of

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_a_job_passes_through_its_states(app: Penstock, clock: Clock) -> None:
    """queued, running, retrying and at last completed or failed are job-queue's five states (PJ-10, PJ-T15)."""
    seen: list[tuple[str, State]] = []

    @app.handler("q", min_backoff=5)
    async def handle(payload: str, job: Job) -> str:
        seen.append((job.id, (await status_of(app, job.id)).state))
        if payload == "bad" or job.attempt == 1:
            raise ValueError("no")
        return payload

    await app.queue("q").enqueue("good", id="a", max_attempts=2)
    await app.queue("q").enqueue("bad", id="b", max_attempts=2)
    assert [(await status_of(app, id)).state for id in "ab"] == [State.QUEUED, State.QUEUED]
    await Worker(app).drain()
    assert [(await status_of(app, id)).state for id in "ab"] == [State.RETRYING, State.RETRYING]
    clock.advance(5)
    await Worker(app).drain()
    assert [(await status_of(app, id)).state for id in "ab"] == [State.COMPLETED, State.FAILED]
    assert seen == [("a", State.RUNNING), ("b", State.RUNNING)] * 2


async def test_a_running_id_is_a_duplicate(app: Penstock) -> None:
    """An enqueue of a running id answers duplicate and its state, and the job runs once (PJ-33, PJ-T2)."""
    answers: list[Any] = []
    runs: list[str] = []

    @app.handler("q")
    async def handle(payload: str) -> str:
        runs.append(payload)
        answers.append(await app.queue("q").enqueue("second", id="a"))
        return payload

    await app.queue("q").enqueue("first", id="a")
    await Worker(app).drain()
    assert [(a.status, a.state, bool(a)) for a in answers] == [("duplicate", State.RUNNING, False)]
    assert runs == ["first"]


async def test_a_completed_id_gives_its_first_result(app: Penstock, clock: Clock) -> None:
    """A completed id answers with the first result, for any payload, until the TTL is over (PJ-T3, PJ-T7)."""
    app.listen("q", lambda payload: payload)
    queue = app.queue("q")
    await queue.enqueue({"n": 1}, id="a")
    await Worker(app).drain()
    clock.advance(minutes=59)
    again = await queue.enqueue({"n": 2}, id="a")
    assert (again.status, again.result) == ("completed", {"n": 1})
    clock.advance(minutes=1)
    assert await queue.status("a") is None
    assert await queue.result("a", default=None) is None
    assert (await queue.enqueue({"n": 2}, id="a")).status == "queued"


async def test_a_failed_id_starts_anew(app: Penstock) -> None:
    """An enqueue of a failed id starts a new job, as in job-queue's document and unlike its code (PJ-41)."""
    runs: list[int] = []

    @app.handler("q")
    async def handle(payload: str, job: Job) -> str:
        runs.append(job.attempt)
        if payload == "bad":
            raise ValueError("no")
        return payload

    queue = app.queue("q")
    await queue.enqueue("bad", id="a", max_attempts=1)
    await Worker(app).drain()
    assert (await status_of(app)).state is State.FAILED
    assert (await queue.enqueue("good", id="a")).status == "queued"
    await Worker(app).drain()
    assert await queue.result("a") == "good"
    assert runs == [1, 1]


async def test_one_of_many_enqueues_at_once_is_accepted(factory: AppFactory) -> None:
    """Of concurrent enqueues of one id, from several producers, exactly one is queued (PJ-T6, PJ-D29)."""
    producers = [await factory.app() for _ in range(3)]
    answers = await asyncio.gather(*(each.queue("q").enqueue(n, id="a") for n, each in enumerate(producers)))
    assert sorted(str(answer.status) for answer in answers) == ["duplicate", "duplicate", "queued"]
    assert (await producers[0].queue("q").counts())[State.QUEUED] == 1


async def test_cancel_and_enqueue_runs_the_new_payload_only(app: Penstock) -> None:
    """A cancelled id can be used again at once, and only the new payload runs (PJ-T5, PJ-T14, PJ-D10)."""
    runs: list[str] = []
    app.listen("q", runs.append)
    queue = app.queue("q")
    await queue.enqueue("old", id="a")
    assert (await queue.cancel("a")).status == "cancelled"
    assert (await queue.enqueue("new", id="a")).status == "queued"
    await Worker(app).drain()
    assert runs == ["new"]


async def test_the_first_ttl_wins(app: Penstock, clock: Clock) -> None:
    """The result TTL given with the accepted enqueue holds, and a duplicate's is ignored (PJ-S4, PJ-T8)."""
    app.listen("q", lambda payload: payload)
    queue = app.queue("q")
    await queue.enqueue(1, id="a", result_ttl=10)
    await queue.enqueue(1, id="a", result_ttl=9999)
    await queue.enqueue(2, id="b")
    await Worker(app).drain()
    clock.advance(10)
    assert await queue.status("a") is None
    assert await queue.result("b") == 2
    for bad in (-1, "60", True):
        with pytest.raises((TypeError, ValueError), match="result_ttl"):
            await queue.enqueue(3, id="c", result_ttl=bad)  # type: ignore[arg-type]


async def test_an_id_can_be_made_of_the_content(app: Penstock) -> None:
    """An id that is a digest of the payload makes equal payloads one job (PJ-48)."""

    def content_id(payload: Any) -> str:
        return hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()[:16]

    queue = app.queue("q")
    answers = [await queue.enqueue(p, id=content_id(p)) for p in ({"a": 1, "b": 2}, {"b": 2, "a": 1}, {"a": 2})]
    assert [str(answer.status) for answer in answers] == ["queued", "duplicate", "queued"]


async def test_status_shows_created_at_and_attempts(app: Penstock, clock: Clock) -> None:
    """created_at is the time of the enqueue and attempts counts the runs, to the end (PJ-37, PJ-S16, PJ-S21)."""
    created = datetime.fromtimestamp(clock.time(), UTC)
    seen: list[datetime] = []

    @app.handler("q", min_backoff=5)
    async def handle(payload: int, job: Job) -> int:
        seen.append(job.created_at)
        if job.attempt < 3:
            raise ValueError("again")
        return job.attempt

    await app.queue("q").enqueue(1, id="a")
    for _ in range(3):
        await Worker(app).drain()
        clock.advance(minutes=10)
    status = await status_of(app)
    assert (status.state, status.attempts, status.created_at, status.result) == (State.COMPLETED, 3, created, 3)
    assert seen == [created] * 3
    assert await app.queue("q").status("unknown") is None
