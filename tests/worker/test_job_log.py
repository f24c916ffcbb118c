"""job.log and capture_logs: lines of handlers that are kept with their jobs."""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

import pytest

from penstock import Job, Penstock, State, Worker
from penstock.errors import StorageUnavailable
from penstock.storage.base import Report, Reported
from penstock.worker import log_sender
from tests.support import eventually


async def run_all(app: Penstock) -> None:
    await Worker(app).drain()


async def test_lines_of_a_run_are_there_when_it_has_ended(app: Penstock) -> None:
    """An async handler, a plain one and one of a batch log in order, and a failed run keeps its lines."""

    @app.handler("async", max_retries=0)
    async def in_the_loop(payload: int, job: Job) -> None:
        job.log("begins")
        await asyncio.sleep(0)
        job.log("fails", "error")
        raise ValueError("no")

    @app.handler("plain")
    def in_a_thread(payload: int, job: Job) -> None:
        for n in range(3):
            job.log(str(n))

    @app.handler("batch", batch_size=10)
    async def batch(payloads: list[int], jobs: list[Job]) -> None:
        for job in jobs:
            job.log(job.id)

    for queue in ("async", "plain", "batch"):
        await app.queue(queue).enqueue(1, id="a")
    await app.queue("batch").enqueue(1, id="b")
    await run_all(app)
    assert [(line.level, line.text) for line in await app.queue("async").log("a")] == [
        ("info", "begins"), ("error", "fails"),
    ]  # fmt: skip
    assert [line.text for line in await app.queue("plain").log("a")] == ["0", "1", "2"]
    assert [line.text for line in await app.queue("plain").log("a", after=2)] == ["2"]
    assert [line.text for id in "ab" for line in await app.queue("batch").log(id)] == ["a", "b"]
    [attempt] = await app.queue("async").attempts("a")
    assert (attempt.outcome, attempt.error and attempt.error.type) == ("failed", "ValueError")
    assert await app.queue("async").log("none") == []


async def test_lines_arrive_while_the_run_goes_on(app: Penstock) -> None:
    """They are sent a moment after they were logged, not only at the end."""
    seen = asyncio.Event()

    @app.handler("q")
    async def work(payload: int, job: Job) -> None:
        job.log("under way")
        await seen.wait()

    async with Worker(app):
        await app.queue("q").enqueue(1, id="a")
        await eventually(lambda: app.queue("q").log("a"))
        assert (await app.queue("q").status("a")).state is State.RUNNING  # type: ignore[union-attr]
        seen.set()


async def test_of_too_many_lines_the_oldest_go_and_the_run_is_not_held_up(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that logs faster than the storage takes lines keeps the last thousand."""
    monkeypatch.setattr(log_sender, "GATHER", 60.0)

    @app.handler("q")
    async def work(payload: int, job: Job) -> None:
        for n in range(1500):
            job.log(str(n))

    await app.queue("q").enqueue(1, id="a")
    await run_all(app)
    lines = await app.queue("q").log("a")
    assert [line.text for line in lines] == [str(n) for n in range(500, 1500)]


async def test_a_report_that_fails_is_sent_again_with_the_end(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines that the storage did not take stay, and none is stored twice."""
    from penstock.errors import StorageUnavailable

    calls: list[int] = []
    monkeypatch.setattr(log_sender, "GATHER", 0.0)

    @app.handler("q")
    async def work(payload: int, job: Job) -> None:
        real = app.storage.report

        async def unsure(reports: list[Report]) -> list[Reported]:
            calls.append(len(reports))
            answers = await real(reports)
            if len(calls) == 1:
                raise StorageUnavailable("the answer was lost")
            return answers

        monkeypatch.setattr(app.storage, "report", unsure)
        job.log("one")
        await eventually(lambda: calls)
        job.log("two")

    await app.queue("q").enqueue(1, id="a")
    await run_all(app)
    assert [line.text for line in await app.queue("q").log("a")] == ["one", "two"]


async def test_a_worker_that_has_ended_sends_no_lines(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The timer that would send the lines of its runs is cancelled: nothing goes on in the program of the worker."""
    loop = asyncio.get_running_loop()
    call_later, timers = loop.call_later, list[asyncio.TimerHandle]()

    def noted(delay: float, callback: Any, *args: Any, **options: Any) -> asyncio.TimerHandle:
        timer = call_later(delay, callback, *args, **options)
        if delay == log_sender.GATHER:
            timers.append(timer)
        return timer

    @app.handler("q")
    async def write(payload: int, job: Job) -> None:
        job.log("a line")

    monkeypatch.setattr(log_sender, "GATHER", 3600.5)
    monkeypatch.setattr(loop, "call_later", noted)
    await app.queue("q").enqueue(1, id="a")
    await run_all(app)
    assert [line.text for line in await app.queue("q").log("a")] == ["a line"]
    assert [timer.cancelled() for timer in timers] == [True]


async def test_captured_records_are_kept_with_the_job_whose_code_logged_them(app: Penstock) -> None:
    """Records of the handler and of its threads are kept from the level on; those outside of runs are not."""
    logger = logging.getLogger("tests.captured")
    app.capture_logs("tests.captured", "INFO")
    try:

        @app.handler("q")
        async def work(payload: int) -> None:
            logger.info("order %d", payload)
            logger.debug("not kept")
            await asyncio.to_thread(logger.warning, "in a thread")

        logger.error("outside")
        await app.queue("q").enqueue(7, id="a")
        await run_all(app)
        found = [(line.level, line.text) for line in await app.queue("q").log("a")]
        assert found == [("info", "order 7"), ("warning", "in a thread")]
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)


@pytest.mark.parametrize("request_", ["quiet", "stop"])
async def test_a_worker_does_what_it_is_asked_for(app: Penstock, request_: str) -> None:
    """A busy worker claims no more at once; asked to stop, it ends when its run has ended."""
    release, started = asyncio.Event(), asyncio.Event()

    @app.handler("q")
    async def work(payload: int) -> None:
        started.set()
        await release.wait()

    worker = Worker(app, id="w")
    async with worker:
        await app.queue("q").enqueue(1, id="a")
        await started.wait()
        assert await app.ask_worker("w", request_)  # type: ignore[arg-type]

        async def is_quiet() -> bool:
            return any(each.quiet for each in await app.workers())

        await eventually(is_quiet)
        await app.queue("q").enqueue(2, id="b")
        release.set()
        if request_ == "stop":
            await worker.wait_stopped()
        assert (await app.queue("q").status("b")).state is State.QUEUED  # type: ignore[union-attr]
    assert not await app.ask_worker("w", "quiet")


async def test_a_worker_notes_the_release_of_its_environment(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """`PENSTOCK_RELEASE` is in the list of releases, once, and in the list of workers."""
    monkeypatch.setenv("PENSTOCK_RELEASE", "v1.4.2")

    @app.handler("q")
    async def work(payload: int) -> None: ...

    for _ in range(2):
        async with Worker(app, id="w"):
            [worker] = await eventually(app.workers)
            assert worker.release == "v1.4.2"
    assert [release.name for release in await app.releases()] == ["v1.4.2"]


async def test_a_release_that_is_no_text_stops_no_heartbeat(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of `PENSTOCK_RELEASE` that are not UTF-8 are escaped, so the worker is listed and its queues are swept."""
    monkeypatch.setenv("PENSTOCK_RELEASE", os.fsdecode(b"v\xff"))

    @app.handler("q")
    async def work(payload: int) -> None: ...

    async with Worker(app, id="w"):
        [worker] = await eventually(app.workers)
    assert worker.release == "v\\udcff"
    assert [release.name for release in await app.releases()] == [worker.release]


async def test_a_lease_lost_while_the_last_lines_are_sent_ends_without_an_outcome(
    app: Penstock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The storage does not answer the report of the last lines until the lease is over: no settle follows."""
    lost, settles = asyncio.Event(), 0
    app.on("lease_lost")(lambda event: lost.set())

    @app.handler("q")
    async def work(payload: int, job: Job) -> None:
        job.log("the last line")

    async with app:
        storage: Any = await app.opened()

        async def report(reports: list[Report]) -> list[Reported]:
            await lost.wait()
            return [Reported(False) for _ in reports]

        async def renew(*args: Any) -> Any:
            raise StorageUnavailable("renewals do not arrive")

        async def settle(*args: Any) -> Any:
            nonlocal settles
            settles += 1
            return await real_settle(*args)

        real_settle = storage.settle
        monkeypatch.setattr(storage, "report", report)
        monkeypatch.setattr(storage, "renew", renew)
        monkeypatch.setattr(storage, "settle", settle)
        worker = Worker(app, lease=1)
        async with worker:
            await app.queue("q").enqueue(1, id="a")
            await asyncio.wait_for(lost.wait(), 30)
        assert settles == 0
