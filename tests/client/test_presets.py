"""Presets: each system's defaults, and explicit options over them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import DuplicateJob, Entry, HandlerOptions, Job, Penstock, State, Worker
from penstock.storage.base import Request
from tests.support import eventually

PRESETS = ("queasy", "queue_farm", "job_queue", "worqr")

#: The systems' defaults, with bounds in our words: max_failures=n is max_retries=n-1.
TABLE: dict[str, dict[str, Any]] = {
    "queasy": {
        "retry_position": "due", "max_attempts": None, "max_retries": 10, "max_stalls": 3, "max_timeouts": 3,
        "min_backoff": 2.0, "max_backoff": 300.0, "timeout": 60.0, "retain": "none", "size": 10, "concurrency": None,
    },
    "queue_farm": {
        "retry_position": "keep", "max_attempts": 3, "max_retries": None, "max_stalls": None, "max_timeouts": None,
        "min_backoff": 0.0, "timeout": 30.0, "retain": "none", "concurrency": 1, "batch_size": 1,
    },
    "job_queue": {
        "retry_position": "keep", "max_attempts": 3, "max_retries": None, "max_stalls": 3, "max_timeouts": None,
        "min_backoff": 0.0, "timeout": 30.0, "retain": "ttl", "result_ttl": 3600.0, "concurrency": 1,
    },
    "worqr": {
        "retry_position": "keep", "max_attempts": None, "max_retries": None, "max_stalls": None, "max_timeouts": None,
        "min_backoff": 0.0, "timeout": None, "retain": "none",
    },
}  # fmt: skip


def handle(payload: Any) -> None: ...


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_sets_the_defaults(preset: str) -> None:
    """Handlers, and queues without one, have the options of the table."""
    app = Penstock("memory:", preset=preset)
    app.listen("q", handle)
    for options in (app.handlers["q"].options, app.options("unknown")):
        assert {name: getattr(options, name) for name in TABLE[preset]} == TABLE[preset]
    assert app.preset == preset


@pytest.mark.parametrize(("preset", "lease"), [(None, 10), ("queasy", 10), ("queue_farm", 30), ("worqr", 3)])
def test_a_worker_has_the_lease_of_the_preset(preset: str | None, lease: float) -> None:
    """Unless one is given."""
    app = Penstock("memory:", preset=preset)
    assert Worker(app).lease == lease
    assert Worker(app, lease=7).lease == 7


def test_without_a_preset_nothing_changes() -> None:
    """The defaults are those of `HandlerOptions`, and an unknown preset is refused with the four names."""
    app = Penstock("memory:")
    app.listen("q", handle)
    assert app.handlers["q"].options == app.options("r") == HandlerOptions()
    assert app.preset is None
    with pytest.raises(ValueError, match="'queasy', 'queue_farm', 'job_queue', 'worqr'"):
        Penstock("memory:", preset="celery")


def test_explicit_options_win() -> None:
    """A handler's own option wins, and also resets the option of the preset that would defeat it."""
    app = Penstock("memory:", preset="queue_farm")
    app.listen("q", handle, max_retries=5, size=20, result_ttl=60, timeout=None)
    options = app.handlers["q"].options
    assert (options.max_retries, options.max_attempts) == (5, None)
    assert (options.size, options.concurrency) == (20, None)
    assert (options.result_ttl, options.retain) == (60, "ttl")
    assert options.timeout is None
    app.listen("r", handle, max_retries=5, max_attempts=4, retain="none", result_ttl=60)
    options = app.handlers["r"].options
    assert (options.max_retries, options.max_attempts, options.retain) == (5, 4, "none")


async def test_queasy_updates_the_job_that_has_the_id() -> None:
    """The same id changes the waiting job, and a finished one is forgotten at once."""
    async with Penstock("memory:", preset="queasy") as app:
        queue = app.queue("q")
        await queue.enqueue(1, id="a")
        assert (await queue.enqueue(2, id="a")).status == "updated"
        assert [e.status for e in await queue.enqueue_many([Entry(3, id="a")])] == ["updated"]
        assert (await queue.enqueue(4, id="a", on_conflict="reject")).status == "duplicate"
        payloads: list[int] = []
        app.listen("q", payloads.append)
        await Worker(app).drain()
        assert payloads == [3]
        assert await queue.status("a") is None


async def test_queue_farm_runs_a_queue_in_order() -> None:
    """A job is in the group of its queue unless another is named; there is no priority in a group (QF-1)."""
    async with Penstock("memory:", preset="queue_farm") as app:
        queue = app.queue("q")
        first = await queue.enqueue(1)
        await queue.enqueue_many([2, Entry(3, group="other")])
        groups = [status.group for status in await queue.find()]
        assert sorted(map(str, groups)) == ["other", "q", "q"]
        entry = Entry(4)
        await queue.enqueue_many([entry])
        assert entry.group is None
        with pytest.raises(ValueError, match="priority: with preset='queue_farm'"):
            await queue.enqueue(5, priority=1)
        with pytest.raises(ValueError, match="priority"):
            await queue.enqueue(5, priority=1, group="g")
        [claim] = (await app.storage.claim([Request("q", 1)], "w", 1000, "t" * 16)).claims[:1]
        assert claim.id == first.id


async def test_queue_farm_gives_up_after_three_starts() -> None:
    """Every start counts, a retry comes at once and at the head (QF-7, QF-44)."""
    async with Penstock("memory:", preset="queue_farm") as app:
        runs: list[int] = []

        @app.handler("q")
        def fail(payload: int) -> None:
            runs.append(payload)
            raise ValueError("no")

        await app.queue("q").enqueue_many([1, 2])
        await Worker(app).drain(scheduled=True)
        assert runs == [1, 1, 1, 2, 2, 2]


async def test_queue_farm_forgets_a_running_job_that_is_deleted() -> None:
    """cancel() of a running job makes the run its last, and is falsy (QF-S9)."""
    async with Penstock("memory:", preset="queue_farm") as app:
        runs: list[int] = []

        @app.handler("q")
        async def fail(payload: int) -> None:
            runs.append(payload)
            assert not await app.queue("q").cancel("a")
            raise ValueError("no")

        await app.queue("q").enqueue(1, id="a")
        await Worker(app).drain(scheduled=True)
        assert runs == [1]


async def test_worqr_raises_and_signals() -> None:
    """A taken id is an exception, and a cancel asks the run to end (C5, C16)."""
    async with Penstock("memory:", preset="worqr") as app:
        queue = app.queue("q")
        running = asyncio.Event()
        seen: list[bool] = []

        @app.handler("q")
        async def cooperate(payload: Any, job: Job) -> None:
            running.set()
            seen.append(await job.cancelled)

        await queue.enqueue(1, id="a")
        with pytest.raises(DuplicateJob):
            await queue.enqueue(1, id="a")
        with pytest.raises(DuplicateJob):
            await queue.enqueue_many([Entry(1, id="a")])
        async with Worker(app):
            await running.wait()
            assert (await queue.cancel("a")).status == "cancel_requested"
            assert (await queue.cancel("a", running="refuse")).status in ("running", "cancel_requested")
            await eventually(lambda: seen == [True])


async def test_worqr_ignores_a_follow_up_with_a_taken_id() -> None:
    """A follow-up job whose id is taken raises nowhere and changes nothing."""
    async with Penstock("memory:", preset="worqr") as app:

        @app.handler("q")
        def handle(payload: Any, job: Job) -> None:
            job.then("r", 2, id="a")

        await app.queue("r").enqueue(1, id="a")
        await app.queue("q").enqueue(1)
        await Worker(app).drain()
        assert [(job.id, job.payload) for job in await app.queue("r").find()] == [("a", 1)]


async def test_job_queue_keeps_results() -> None:
    """A duplicate of a completed job gets the cached result; three runs, at once (C3, C10)."""
    async with Penstock("memory:", preset="job_queue") as app:
        runs: list[int] = []

        @app.handler("q")
        def double(payload: int) -> int:
            runs.append(payload)
            if payload < 0:
                raise ValueError("no")
            return payload * 2

        await app.queue("q").enqueue(2, id="a")
        await app.queue("q").enqueue(-1, id="b")
        await Worker(app).drain(scheduled=True)
        assert (await app.queue("q").enqueue(2, id="a")).result == 4
        assert runs.count(-1) == 3
        assert (await app.queue("q").counts())[State.FAILED] == 1
