"""call and wait: a caller gets the result of its job, through retries, restarts and lost connections."""

from __future__ import annotations

import asyncio
import gc
import pickle
from collections.abc import Awaitable
from typing import Any

import pytest

from penstock import (
    CallTimeout,
    DuplicateJob,
    Entry,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobNotFound,
    Penstock,
    PermanentError,
    State,
    StorageUnavailable,
)
from penstock.client.reservation import Reservation
from tests.servers import Server, redis_program
from tests.support import Backend, RedisBackend, eventually, forget_all, retry_until_available

#: How soon an answer must come; the net below the hints is coarser than that.
SOON = 4.0


async def take(app: Penstock, queue: str = "q") -> Reservation:
    """Claim the next job, as a worker would."""
    [taken] = await app.queue(queue).reserve(wait=10)
    return taken


async def soon(answer: Awaitable[Any]) -> Any:
    return await asyncio.wait_for(answer, SOON)


def start(answer: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(answer)


async def echo(app: Penstock, count: int, queue: str = "q") -> None:
    """Complete `count` jobs with their payloads."""
    while count:
        for taken in await app.queue(queue).reserve(limit=min(count, 1000), wait=10):
            await taken.complete(taken.payload)
            count -= 1


# results -----------------------------------------------------------------------------------------


async def test_a_call_gives_the_result(app: Penstock) -> None:
    """A call enqueues a job and gives what its run returned (PJ-3, PJ-34, PJ-43, PJ-T9)."""
    task = start(app.queue("q").call({"n": 1}, id="a", headers={"k": "v"}))
    taken = await take(app)
    assert (taken.id, taken.payload, taken.headers) == ("a", {"n": 1}, {"k": "v"})
    await taken.complete({"twice": 2})
    assert await soon(task) == {"twice": 2}


@pytest.mark.parametrize("value", [None, 0, "", False, [], {}])
async def test_a_call_returns_an_empty_result(app: Penstock, value: Any) -> None:
    """A result that is empty or None ends the wait like any other (PJ-D15)."""
    task = start(app.queue("q").call(1))
    await (await take(app)).complete(value)
    assert await soon(task) == value


async def test_a_call_returns_raw_bytes(app: Penstock) -> None:
    """No bytes at all are a result where results are raw bytes (PJ-D15)."""
    queue = app.queue("q", serde="raw", result_serde="raw")
    for value in (b"", b"\0\xff"):
        task = start(queue.call(b"x"))
        await (await take(app)).complete(value)
        assert await soon(task) == value


async def test_a_large_result(app: Penstock) -> None:
    """A result of 5 MB comes whole, if the app allows that much."""
    app.max_result = 6_000_000
    text = "x" * 5_000_000
    task = start(app.queue("q").call(1))
    await (await take(app)).complete(text)
    assert await soon(task) == text


async def test_a_cached_result_comes_at_once(app: Penstock) -> None:
    """An id whose result is kept gives it without a run, and starts anew when it is forgotten (PJ-43)."""
    queue = app.queue("q")
    task = start(queue.call(1, id="a"))
    await (await take(app)).complete("first")
    assert await soon(task) == "first"
    assert await queue.call(2, id="a", timeout=0) == "first"
    with pytest.raises(DuplicateJob):
        await queue.call(2, id="a", on_conflict="raise")
    task = start(queue.call(3, id="a", on_conflict="update"))
    await (await take(app)).complete("second")
    assert await soon(task) == "second"


async def test_waiting_for_a_job_enqueued_earlier(app: Penstock) -> None:
    """wait gives the result of a job that waits, runs or has ended."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    waits = [start(queue.wait("a"))]
    taken = await take(app)
    waits.append(start(queue.wait("a", timeout=20)))
    await taken.complete("done")
    assert await soon(asyncio.gather(*waits)) == ["done", "done"]
    assert await queue.wait("a", timeout=0) == "done"


async def test_a_result_that_is_not_kept_is_given_all_the_same(app: Penstock) -> None:
    """A waiting caller gets the result of a job with result_ttl=0, and the id is free at once."""
    queue = app.queue("q")
    task = start(queue.call(1, id="a", result_ttl=0))
    await (await take(app)).complete("first")
    assert await soon(task) == "first"
    task = start(queue.call(2, id="a", result_ttl=0))
    taken = await take(app)
    assert taken.payload == 2
    await taken.complete("second")
    assert await soon(task) == "second"


async def test_a_handler_that_retains_nothing_answers_calls(app: Penstock) -> None:
    """With retain="none" waiting callers get their result, and later readers do not."""
    app.listen("q", lambda payload: None, retain="none")
    queue = app.queue("q")
    task = start(queue.call(1, id="a"))
    await (await take(app)).complete("value")
    assert await soon(task) == "value"
    await queue.enqueue(1, id="b")
    await (await take(app)).complete("value")
    assert await queue.status("b") is None


# joining -----------------------------------------------------------------------------------------


async def test_two_callers_of_one_id_share_a_run(app: Penstock) -> None:
    """A call joins a duplicate, queued or running: one run, the first payload, two results (PJ-T11)."""
    queue = app.queue("q")
    first, second = start(queue.call("one", id="a")), start(queue.call("two", id="a"))
    taken = await take(app)
    with pytest.raises(CallTimeout, match="running"):
        await queue.call("three", id="a", timeout=0)
    third = start(queue.call("three", id="a"))
    await taken.complete(taken.payload)
    assert await soon(asyncio.gather(first, second, third)) == [taken.payload] * 3
    assert (await queue.counts())[State.COMPLETED] == 1


async def test_a_failed_duplicate_starts_a_new_job(app: Penstock) -> None:
    """A failed job has no result to give, so calling its id again runs it again."""
    queue = app.queue("q")
    task = start(queue.call(1, id="a"))
    await (await take(app)).fail(PermanentError("no"))
    with pytest.raises(JobFailed):
        await soon(task)
    task = start(queue.call(2, id="a"))
    await (await take(app)).complete("better")
    assert await soon(task) == "better"


async def test_an_update_during_the_run_is_waited_for(app: Penstock) -> None:
    """Every caller that waits for an id gets the result of the successor that replaced the job."""
    queue = app.queue("q")
    first = start(queue.call("old", id="a"))
    taken = await take(app)
    second = start(queue.call("new", id="a", on_conflict="update"))

    async def blocked() -> bool:
        return (await queue.counts())[State.BLOCKED] == 1

    await eventually(blocked)
    await taken.complete("of the old")
    successor = await take(app)
    assert successor.payload == "new"
    assert not first.done()
    assert not second.done()
    await successor.complete("of the new")
    assert await soon(asyncio.gather(first, second)) == ["of the new"] * 2


async def test_a_call_waits_through_a_retry(app: Penstock) -> None:
    """A run that is to be repeated is no end."""
    task = start(app.queue("q").call(1, id="a"))
    await (await take(app)).retry(delay=0)
    again = await take(app)
    assert again.attempt == 2
    assert not task.done()
    await again.complete("at last")
    assert await soon(task) == "at last"


# errors ------------------------------------------------------------------------------------------


async def test_a_failure_is_raised_with_its_error(app: Penstock) -> None:
    """JobFailed has the error's type, message, kind and traceback (PJ-T12)."""
    task = start(app.queue("q").call(1, id="a"))
    taken = await take(app)
    try:
        raise PermanentError("no way")
    except PermanentError as error:
        await taken.fail(error)
    with pytest.raises(JobFailed, match=r"'a'.*'q'.*PermanentError: no way") as failed:
        await soon(task)
    error = failed.value.error
    assert (error.type, error.message, error.kind) == ("PermanentError", "no way", "permanent")
    assert "raise PermanentError" in error.traceback


async def test_a_cancelled_job_is_raised(app: Penstock) -> None:
    """JobCancelled ends the wait for a job that is cancelled, waiting or running."""
    queue = app.queue("q")
    task = start(queue.call(1, id="a"))

    async def cancelled() -> bool:
        return bool(await queue.cancel("a"))

    await eventually(cancelled)
    with pytest.raises(JobCancelled, match="'a'"):
        await soon(task)
    task = start(queue.call(1, id="b"))
    taken = await take(app)
    await queue.cancel("b", running="signal")
    assert await taken.fail("stopped") is State.CANCELLED
    with pytest.raises(JobCancelled):
        await soon(task)


async def test_a_call_that_takes_too_long(app: Penstock) -> None:
    """CallTimeout names the job and its state; the job goes on, and can be waited for again (PJ-T10)."""
    queue = app.queue("q")
    with pytest.raises(CallTimeout, match=r"'a'.*'q'.*0\.02 s.*queued.*goes on"):
        await queue.call(1, id="a", timeout=0.02)
    taken = await take(app)
    with pytest.raises(TimeoutError, match="running"):
        await queue.wait("a", timeout=0)
    task = start(queue.wait("a"))
    await taken.complete("late")
    assert await soon(task) == "late"


async def test_two_waiters_with_different_timeouts(app: Penstock) -> None:
    """A waiter that gives up does not take the other's answer away (PJ-D17)."""
    queue = app.queue("q")
    patient = start(queue.call(1, id="a", timeout=None))
    taken = await take(app)
    with pytest.raises(CallTimeout):
        await queue.call(1, id="a", timeout=0.02)
    await taken.complete("value")
    assert await soon(patient) == "value"


async def test_a_call_for_a_missing_job_raises_job_not_found(app: Penstock) -> None:
    """JobNotFound is raised at once for an unknown id, and when the queue is deleted during the wait."""
    queue = app.queue("q")
    with pytest.raises(JobNotFound, match=r"'none'.*'q'"):
        await soon(queue.wait("none"))
    task = start(queue.call(1, id="a"))
    taken = await take(app)
    await queue.delete()
    with pytest.raises(JobNotFound, match="deleted"):
        await asyncio.wait_for(task, SOON + 4)
    assert taken.id == "a"


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"timeout": -1}, ValueError, "timeout"),
        ({"timeout": "soon"}, TypeError, "timeout"),
        ({"run_timeout": 0}, ValueError, "run_timeout"),
        ({"id": ""}, ValueError, "id"),
    ],
)
async def test_bad_arguments_of_a_call(app: Penstock, options: Any, error: type[Exception], name: str) -> None:
    """A bad argument is named, and nothing is stored."""
    with pytest.raises(error, match=name):
        await app.queue("q").call(1, **options)
    assert await app.queues() == []


async def test_a_result_that_cannot_be_decoded(app: Penstock) -> None:
    """A result in another serde than the caller's raises InvalidPayload instead of waiting on."""
    task = start(app.queue("q", result_serde="json").call(1))
    other = Penstock(storage=app.storage)
    [taken] = await other.queue("q", result_serde="msgpack").reserve(wait=10)
    await taken.complete(b"\xff")
    await other.reservations.close()
    with pytest.raises(InvalidPayload):
        await soon(task)


# many, and trouble -------------------------------------------------------------------------------


async def test_a_thousand_calls_at_once(app: Penstock, backend: Backend) -> None:
    """A thousand callers share one subscription and a few connections, and each gets its own result (PJ-T9)."""
    queue = app.queue("q")
    tasks = [start(queue.call(n, timeout=60)) for n in range(1000)]
    before = connections(backend)
    worker = start(echo(app, 1000))
    assert await asyncio.wait_for(asyncio.gather(*tasks), 60) == list(range(1000))
    await worker
    assert connections(backend) - before < 60


def connections(backend: Backend) -> int:
    if not isinstance(backend, RedisBackend):
        return 0
    total = 0
    for client in backend.clients():
        with client:
            total += client.info("clients")["connected_clients"]
    return total


async def test_concurrent_reads_of_waiters_are_coalesced(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiters that look in the same turn are answered by few reads, each with its own job's state."""
    queue = app.queue("q")
    await queue.enqueue_many([Entry(n, id=str(n)) for n in range(150)])
    await echo(app, 75)
    reads: list[int] = []
    real = app.storage.get

    async def get(name: str, ids: Any) -> Any:
        reads.append(len(ids))
        return await real(name, ids)

    monkeypatch.setattr(app.results._reads, "_fetch", get)
    looks = [start(queue.wait(str(n), timeout=0)) for n in range(-1, 150)]
    answers = await asyncio.gather(*looks, return_exceptions=True)
    assert isinstance(answers[0], JobNotFound)
    assert answers[1:76] == list(range(75))
    assert {type(answer) for answer in answers[76:]} == {CallTimeout}
    assert reads == [100, 51]


async def test_a_cancelled_caller_leaves_no_task_behind(app: Penstock) -> None:
    """A caller that is cancelled leaves no task and no future behind, and the job goes on."""
    queue = app.queue("q")
    tasks = [start(queue.call(n, id=str(n))) for n in range(20)]

    async def all_there() -> bool:
        return (await queue.counts())[State.QUEUED] == 20

    await eventually(all_there)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await queue.status("0")
    assert all(task.cancelled() for task in tasks)
    assert not app.results._reads._waiting
    assert not app.results._reads._senders
    waiters = getattr(getattr(app.storage, "_notifier", None), "_waiters", {})
    assert not waiters
    gc.collect()
    await echo(app, 20)


@pytest.mark.only("redis", "valkey", "cluster")
async def test_a_cut_connection_costs_no_result(app: Penstock, backend: RedisBackend) -> None:
    """A caller whose subscription is cut while it waits gets the result all the same (PJ-D18)."""
    task = start(app.queue("q").call(1, timeout=60))
    taken = await take(app)
    for client in backend.clients():
        with client:
            for kind in ("normal", "pubsub"):
                client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
    await retry_until_available(lambda: taken.complete("value"))
    assert await asyncio.wait_for(task, SOON + 6) == "value"


@pytest.mark.only("redis")
async def test_a_restarted_server_costs_no_result(backend: RedisBackend, no_leaks: None) -> None:
    """A caller outlives a restart of the server: it waits for the server, then for the job (PJ-D18)."""
    server = Server(redis_program(), "--appendonly", "yes", "--appendfsync", "always").start()
    app = Penstock(f"redis://{server.address}/0", namespace=backend.namespace)
    try:
        async with app:
            task = start(app.queue("q").call(1, id="a", timeout=None))
            taken = await take(app)
            server.kill()
            with pytest.raises(StorageUnavailable):
                await app.queue("q").status("a")
            assert not task.done()
            server.restart()
            await retry_until_available(lambda: taken.complete("value"))
            assert await asyncio.wait_for(task, SOON + 6) == "value"
            await forget_all(app.storage)
    finally:
        server.remove()


async def test_closing_the_app_ends_waiting_calls(backend: Backend, clock: Any) -> None:
    """Closing the app ends the calls that wait, with an error that gives the reason."""
    app = Penstock(storage=backend.build(clock))
    await app.open()
    task = start(app.queue("q").call(1, id="a"))

    async def there() -> bool:
        return await app.queue("q").status("a") is not None

    await eventually(there)
    await app.close()
    [error] = await asyncio.wait_for(asyncio.gather(task, return_exceptions=True), SOON)
    assert isinstance(error, Exception)
    assert not app.is_open


async def test_the_id_of_a_call_that_timed_out_is_in_its_error(app: Penstock) -> None:
    """`CallTimeout.id` is the generated id, by which `wait` gets the result later; a copy of the error has it, too."""
    with pytest.raises(CallTimeout) as over:
        await app.queue("q").call(1, timeout=0)
    copy = pickle.loads(pickle.dumps(over.value))
    assert (copy.id, str(copy)) == (over.value.id, str(over.value))
    await (await take(app)).complete(result=2)
    assert await soon(app.queue("q").wait(over.value.id)) == 2
