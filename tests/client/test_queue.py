"""The producer's side of a queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import (
    DuplicateJob,
    Entry,
    InvalidPayload,
    Job,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotFinished,
    Penstock,
    PermanentError,
    Progress,
    State,
    Update,
    Worker,
)
from penstock.testing import Clock


async def test_a_job_is_enqueued_and_shown(app: Penstock, clock: Clock) -> None:
    """status() shows the options of enqueue(), times as aware UTC datetimes."""
    queue = app.queue("q")
    answer = await queue.enqueue({"n": 1}, id="a", delay=60, group="g", headers={"trace": "7"})
    assert (answer.id, answer.status, answer.state) == ("a", "scheduled", State.SCHEDULED)
    assert answer
    status = await queue.status("a")
    assert status is not None
    assert (status.id, status.queue, status.state, status.payload) == ("a", "q", "scheduled", {"n": 1})
    assert (status.group, status.priority, status.headers) == ("g", 0, {"trace": "7"})
    assert status.created_at == datetime.fromtimestamp(clock.time(), UTC)
    assert status.run_at - status.created_at == timedelta(minutes=1)
    assert (status.attempts, status.retries, status.stalls, status.timeouts) == (0, 0, 0, 0)
    assert (status.progress, status.worker, status.result, status.error) == (None, None, None, None)
    assert await queue.status("b") is None


async def test_a_job_without_an_id_gets_a_new_one(app: Penstock) -> None:
    """Without an id every job gets a fresh one."""
    answers = [await app.queue("q").enqueue(1) for _ in range(3)]
    assert len({answer.id for answer in answers}) == 3


async def test_an_update_changes_priority_and_group_if_they_are_given(app: Penstock) -> None:
    """An update applies a priority or a group that the call gives, a priority of 0 too, and no other."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a", priority=3)

    async def update(**options: Any) -> tuple[str | None, int]:
        given: dict[str, Any] = {"on_conflict": "update", **options}
        assert (await queue.enqueue(2, id="a", **given)).status == "updated"
        status = await queue.status("a")
        assert status is not None
        return status.group, status.priority

    assert await update() == (None, 3)
    assert await update(priority=9) == (None, 9)
    assert await update(priority=5, on_conflict=Update(priority=False)) == (None, 9)
    assert await update(group="g", priority=0) == ("g", 0)
    assert await update(group="h", on_conflict=Update(group=False)) == ("g", 0)
    assert await update(group="h") == ("h", 0)
    assert await update(group=None) == ("h", 0)
    many = [Entry(3, id="a", on_conflict="update"), Entry(4, id="a", group="i", on_conflict=Update())]
    assert [answer.status for answer in await queue.enqueue_many(many)] == ["updated", "updated"]
    assert await update() == ("i", 0)


@pytest.mark.parametrize("state", ["queued", "running"])
async def test_an_update_to_a_group_and_a_priority_raises(app: Penstock, state: str) -> None:
    """An update after which a job would have a group and a priority is a ValueError, and the job is as before."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a", group="g")
    reserved = await queue.reserve() if state == "running" else []
    before = await queue.status("a")
    message = "'a' in queue 'q' would have a group and a priority, so it was not changed: give priority=0"
    for call in (queue.enqueue, queue.call):
        with pytest.raises(ValueError, match=message):
            await call(2, id="a", priority=9, delay=60, on_conflict="update")
    with pytest.raises(ValueError, match=message):
        await queue.enqueue_many([Entry(2, id="a", priority=9, on_conflict="update"), 3])
    assert await queue.status("a") == before
    assert await queue.find("blocked") == []
    for each in reserved:
        await each.release()


async def test_a_completed_job_is_retried_if_asked(app: Penstock) -> None:
    """retry() leaves a completed job as it is, and with completed=True runs it once more without its old result."""
    runs: list[int] = []
    app.listen("q", lambda payload: runs.append(payload) or len(runs))
    queue = app.queue("q")
    await queue.enqueue(7, id="a")
    await Worker(app).drain()
    assert await queue.retry("a") == 0
    assert await queue.result("a") == 1
    assert await queue.retry(["a", "b"], completed=True) == 1
    status = await queue.status("a")
    assert status is not None
    assert (status.state, status.attempts, status.result) == (State.QUEUED, 0, None)
    await Worker(app).drain()
    assert (runs, await queue.result("a")) == ([7, 7], 2)
    with pytest.raises(TypeError, match="completed must be True or False, not int"):
        await queue.retry("a", completed=1)  # type: ignore[arg-type]


async def test_on_conflict_decides_about_a_taken_id(app: Penstock, clock: Clock) -> None:
    """reject, raise and update: one answer each, and a falsy one only for a duplicate."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    again = await queue.enqueue(2, id="a")
    assert (again.status, again.state, bool(again)) == ("duplicate", State.QUEUED, False)
    with pytest.raises(DuplicateJob, match="'a'"):
        await queue.enqueue(2, id="a", on_conflict="raise")
    assert (await shown(app)).payload == 1
    updated = await queue.enqueue(3, id="a", on_conflict="update")
    assert (updated.status, bool(updated)) == ("updated", True)
    later = Update(payload=False, run_at="if_later")
    await queue.enqueue(4, id="a", delay=10, on_conflict=later)
    status = await shown(app)
    assert (status.payload, status.state) == (3, State.SCHEDULED)


async def shown(app: Penstock, id: str = "a") -> Any:
    status = await app.queue("q").status(id)
    assert status is not None
    return status


async def test_a_completed_job_answers_with_its_result(app: Penstock, clock: Clock) -> None:
    """Until its result is forgotten, enqueueing the id again gives the cached result."""
    app.listen("q", lambda payload: payload, result_ttl=60)
    queue = app.queue("q")
    await queue.enqueue("value", id="a")
    await Worker(app).drain()
    again = await queue.enqueue("other", id="a")
    assert (again.status, again.result, bool(again)) == ("completed", "value", True)
    with pytest.raises(DuplicateJob):
        await queue.enqueue("other", id="a", on_conflict="raise")
    clock.advance(61)
    assert (await queue.enqueue("other", id="a")).status == "queued"


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"id": ""}, ValueError, "id"),
        ({"id": "x" * 513}, ValueError, "id"),
        ({"id": 5}, TypeError, "id"),
        ({"delay": -1}, ValueError, "delay"),
        ({"delay": "1"}, TypeError, "delay"),
        ({"run_at": datetime(2030, 1, 1)}, ValueError, "run_at"),
        ({"run_at": 1, "delay": 1}, ValueError, "run_at or delay"),
        ({"priority": 1.5}, TypeError, "priority"),
        ({"priority": 2**40}, ValueError, "priority"),
        ({"priority": 1, "group": "g"}, ValueError, "priority"),
        ({"group": ""}, ValueError, "group"),
        ({"on_conflict": "ignore"}, ValueError, "on_conflict"),
        ({"timeout": 0}, ValueError, "timeout"),
        ({"max_attempts": 0}, ValueError, "max_attempts"),
        ({"max_retries": -1}, ValueError, "max_retries"),
        ({"result_ttl": -1}, ValueError, "result_ttl"),
        ({"headers": {"a": 1}}, TypeError, "headers"),
    ],
)
async def test_bad_options_are_refused_by_name(
    app: Penstock, options: dict[str, Any], error: type[Exception], name: str
) -> None:
    """Nothing is stored when an argument is bad, alone or in a list."""
    with pytest.raises(error, match=name):
        await app.queue("q").enqueue(1, **options)
    with pytest.raises(error, match=name):
        await app.queue("q").enqueue_many([1, Entry(2, **options)])
    assert await app.queues() == []


async def test_bad_payloads_are_refused(app: Penstock) -> None:
    """A payload that cannot be encoded, or is too large, is an InvalidPayload and a ValueError."""
    small = Penstock(storage=app.storage, max_payload=10)
    with pytest.raises(InvalidPayload, match="payload is 12 bytes, more than max_payload"):
        await small.queue("q").enqueue("x" * 10)
    with pytest.raises(ValueError, match="payload cannot be encoded as JSON"):
        await app.queue("q").enqueue(object())
    assert await app.queues() == []


async def test_many_jobs_at_once(app: Penstock) -> None:
    """Payloads and entries, from lists, iterators and async iterators, keep their order."""

    def count() -> Iterator[Any]:
        yield from range(600)
        yield Entry("last", id="last", priority=-1)

    async def count_async() -> AsyncIterator[int]:
        for n in range(3):
            yield n

    queue = app.queue("q")
    assert [bool(a) for a in await queue.enqueue_many([1, Entry(2, id="two"), Entry(3, id="two")])] == [
        True,
        True,
        False,
    ]
    answers = await queue.enqueue_many(count())
    assert (len(answers), answers[-1].id) == (601, "last")
    assert len(await queue.enqueue_many(count_async())) == 3
    assert await queue.enqueue_many([]) == []
    assert (await queue.counts())[State.QUEUED] == 606
    for bad in ("text", b"bytes", {"a": 1}):
        with pytest.raises(TypeError, match="entries"):
            await queue.enqueue_many(bad)


async def test_result_returns_the_value_or_raises(app: Penstock) -> None:
    """result() returns the value, or raises the reason why there is none; a default replaces every reason."""

    @app.handler("q")
    async def handle(payload: Any) -> Any:
        if payload == "bad":
            raise PermanentError("no way")
        return payload

    queue = app.queue("q")
    values = (None, 0, "", False, [1])
    for n, value in enumerate(values):
        await queue.enqueue(value, id=f"v{n}")
    await queue.enqueue("bad", id="bad")
    await Worker(app).drain()
    assert [await queue.result(f"v{n}") for n in range(len(values))] == list(values)
    with pytest.raises(JobFailed, match="no way") as failed:
        await queue.result("bad")
    assert (failed.value.error.type, failed.value.error.kind) == ("PermanentError", "permanent")
    await queue.enqueue(1, id="later", delay=60)
    with pytest.raises(NotFinished, match="scheduled"):
        await queue.result("later")
    await queue.cancel("later")
    with pytest.raises(JobCancelled):
        await queue.result("later")
    with pytest.raises(JobNotFound, match="'none'"):
        await queue.result("none")
    assert [await queue.result(id, default=7) for id in ("bad", "later", "none")] == [7, 7, 7]


async def test_cancel_answers_what_it_found(app: Penstock) -> None:
    """Truthy only when something was cancelled."""
    app.listen("q", lambda payload: None)
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    cancelled = await queue.cancel("a")
    assert (cancelled.status, bool(cancelled), cancelled.running) == ("cancelled", True, False)
    again = await queue.cancel("a")
    assert (again.status, bool(again), again.already, cancelled.already) == ("cancelled", False, True, False)
    await queue.enqueue(1, id="b")
    await Worker(app).drain()
    done = await queue.cancel("b")
    assert (done.status, bool(done)) == ("completed", False)
    assert (await queue.cancel("c")).status == "not_found"
    with pytest.raises(ValueError, match="running"):
        await queue.cancel("a", running="maybe")  # type: ignore[arg-type]


async def test_jobs_are_found_page_by_page(app: Penstock) -> None:
    """Pages are lists in queue order with a cursor to the next one."""
    queue = app.queue("q")
    await queue.enqueue_many([Entry(n, id=f"j{n}") for n in range(5)])
    await queue.enqueue(9, id="later", delay=60)
    first = await queue.find("queued", limit=3)
    assert [job.id for job in first] == ["j0", "j1", "j2"]
    rest = await queue.find(State.QUEUED, after=first.cursor, limit=3)
    assert [job.id for job in rest] == ["j3", "j4"]
    assert rest.cursor is None
    assert len(await queue.find()) == 6
    peeked = await queue.peek()
    assert peeked is not None
    assert peeked.id == "j0"
    for bad in ({"state": "lost"}, {"limit": 0}, {"limit": 5000}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            await queue.find(**bad)  # type: ignore[arg-type]


async def test_failed_jobs_can_be_retried(app: Penstock) -> None:
    """retry() takes one id or several, zeroes the counts, and returns the number of jobs."""
    fail = True

    @app.handler("q", max_retries=0)
    async def handle(payload: int, job: Job) -> int:
        if fail:
            raise ValueError("not yet")
        return job.attempt

    queue = app.queue("q")
    await queue.enqueue_many([Entry(n, id=f"j{n}") for n in range(3)])
    await Worker(app).drain()
    assert (await queue.counts())[State.FAILED] == 3
    fail = False
    assert await queue.retry("j0") == 1
    assert await queue.retry(["j1", "j2", "none"]) == 2
    await Worker(app).drain()
    assert await queue.result("j1") == 1


async def test_a_paused_queue_hands_out_nothing(app: Penstock) -> None:
    """pause() and resume() return whether they changed anything."""
    app.listen("q", lambda payload: None)
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    assert await queue.pause()
    assert not await queue.pause()
    await Worker(app).drain()
    assert (await shown(app)).state is State.QUEUED
    assert await queue.resume()
    assert not await queue.resume()
    await Worker(app).drain()
    assert (await shown(app)).state is State.COMPLETED


async def test_a_result_can_be_kept_for_longer(app: Penstock, clock: Clock) -> None:
    """update_result_ttl() counts from now, and only for finished jobs."""
    app.listen("q", lambda payload: payload)
    queue = app.queue("q")
    await queue.enqueue(1, id="a", result_ttl=10)
    assert not await queue.update_result_ttl("a", 100)
    await Worker(app).drain()
    assert await queue.update_result_ttl("a", 100)
    clock.advance(50)
    assert await queue.result("a") == 1
    assert await queue.update_result_ttl("a", None)
    clock.advance(days=400)
    assert await queue.result("a") == 1
    assert await queue.update_result_ttl("a", 0)
    assert await queue.status("a") is None


async def test_a_deleted_queue_is_gone(app: Penstock) -> None:
    """delete() removes every job and returns their number."""
    await app.queue("q").enqueue_many([1, Entry(2, delay=60)])
    assert await app.queues() == ["q"]
    assert await app.queue("q").delete() == 2
    assert await app.queues() == []


async def test_an_undecodable_payload_is_shown_as_its_bytes(app: Penstock) -> None:
    """Looking at a job never fails because of what is in it."""
    other = Penstock(storage=app.storage, serde="raw")
    await other.queue("q").enqueue(b"\xff{", id="a")
    assert (await shown(app)).payload == b"\xff{"


async def test_progress_is_shown_while_it_runs(app: Penstock) -> None:
    """progress is a fraction and a message, and gone once the run is over."""
    seen: list[Progress | None] = []

    @app.handler("q")
    async def handle(payload: int, job: Job) -> None:
        assert await job.progress(0.4, "resizing")
        seen.append((await shown(app)).progress)

    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    assert seen == [Progress(0.4, "resizing")]
