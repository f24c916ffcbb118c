"""An EndNotice has the result that a read of the storage would give."""

from __future__ import annotations

import asyncio

import pytest

from penstock import CallTimeout, JobCancelled, JobFailed, Penstock, PermanentError, Worker, sync
from penstock.model.job import State
from penstock.storage.base import EndNotice, Storage
from tests.support import RedisBackend, claim1, complete, eventually, new, settle1

LARGE = 100_000


@pytest.mark.only("redis", "valkey", "cluster")
@pytest.mark.beyond_model
async def test_the_notice_of_a_fresh_job_has_its_result(storage: Storage) -> None:
    """The waiter of a job with a new id gets its result with the notice, if that is short."""
    for result, expected in ((b"short", EndNotice("a", State.COMPLETED, b"short")), (b"x" * LARGE, True)):
        await storage.put([new("q", "a", fresh=True, waiter="w")])
        waiting = asyncio.create_task(storage.wait_done("q", "a", 60))
        await asyncio.sleep(0)
        await settle1(storage, complete(await claim1(storage), result))
        assert await asyncio.wait_for(waiting, 30) == expected
        await storage.delete_queue("q")


@pytest.mark.beyond_model
async def test_the_notice_of_a_given_id_is_only_a_hint(storage: Storage) -> None:
    """The waiter of a job with a given id, which may have existed before, gets only a hint to read."""
    await storage.put([new("q", "a", waiter="w")])
    waiting = asyncio.create_task(storage.wait_done("q", "a", 60))
    await asyncio.sleep(0)
    await settle1(storage, complete(await claim1(storage), b"result"))
    assert await asyncio.wait_for(waiting, 30) is True


async def test_a_caller_gets_every_kind_of_outcome(app: Penstock) -> None:
    """Small and large results, failures and cancellations are the same with and without an id, alone and among many."""

    @app.handler("q", max_retries=0)
    async def handle(payload: int | str) -> int | str:
        if payload == "fail":
            raise PermanentError("as asked")
        return payload

    queue = app.queue("q")
    async with Worker(app):
        for id in (None, "a"):
            assert await queue.call(1, id=id, timeout=60) == 1
            assert await queue.call("x" * LARGE, id=id and "b", timeout=60) == "x" * LARGE
            with pytest.raises(JobFailed, match="as asked"):
                await queue.call("fail", id=id and "c", timeout=60)
        assert await asyncio.gather(*(queue.call(n, timeout=60) for n in range(50))) == list(range(50))
    waiting = asyncio.create_task(queue.call(1, delay=3600, timeout=60))
    found = await eventually(lambda: queue.find("scheduled"))
    await queue.cancel(found[0].id)
    with pytest.raises(JobCancelled):
        await waiting


@pytest.mark.only("redis", "cluster")
@pytest.mark.beyond_model
async def test_callers_that_time_out_leave_no_waiter(backend: RedisBackend, runner: asyncio.Runner) -> None:
    """`call` and `wait` that time out, of both kinds of apps, are no waiters of their job once the app is closed."""
    app = Penstock(backend.url, namespace=backend.namespace)

    def without_await() -> None:
        with sync.Penstock(backend.url, namespace=backend.namespace) as blocking:
            for wait in (
                lambda: blocking.queue("q").call(1, timeout=0.02),
                lambda: blocking.queue("q").wait("a", 0.02),
            ):
                with pytest.raises(CallTimeout):
                    wait()

    async with app:
        await app.queue("q").enqueue(1, id="a")
        async with Penstock(backend.url, namespace=backend.namespace) as other:
            for wait in (other.queue("q").call(1, timeout=0.02), other.queue("q").wait("a", 0.02)):
                with pytest.raises(CallTimeout):
                    await wait
        await asyncio.to_thread(without_await)
        assert not [key for key in backend.keys() if key.endswith(b":waits")]  # noqa: SIM118
        await app.queue("q").delete()


async def test_a_caller_behind_a_run_gets_the_result_of_its_own(app: Penstock) -> None:
    """The end of the run in front is not the end of the job that was called."""
    gate, began = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def handle(payload: str) -> str:
        began.set()
        await gate.wait()
        return payload

    queue = app.queue("q")
    async with Worker(app):
        first = asyncio.create_task(queue.call("first", id="a", timeout=60))
        await began.wait()
        second = asyncio.create_task(queue.call("second", id="a", on_conflict="update", timeout=60))
        await eventually(lambda: queue.find("blocked"))
        gate.set()
        assert await second == "second"
        assert await first in ("first", "second")
