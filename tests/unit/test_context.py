"""The context of a handler: the job, its progress, its cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import Progress
from penstock.model.context import Cancellation, Job
from penstock.model.headers import encode_headers
from penstock.model.job import Claim, NewJob


class FakeServices:
    worker = "w"

    def __init__(self) -> None:
        self.reported: list[Progress] = []
        self.logged: list[tuple[str, str]] = []

    def report(self, claim: Claim, progress: Progress) -> Any:
        self.reported.append(progress)
        return asyncio.sleep(0, True)

    def log(self, claim: Claim, text: str, level: str) -> None:
        self.logged.append((text, level))

    def new_job(self, queue: str, payload: Any, options: Any) -> NewJob:
        return NewJob(queue=queue, id="next", payload=b"", **options)


CLAIM = Claim(
    queue="q", id="a", token="t", payload=b"[1]", group="g", headers=encode_headers({"h": "1"}),
    created=1000, run_at=2000, attempts=3, retries=1, stalls=1, timeouts=0,
)  # fmt: skip


def test_a_job_shows_its_claim() -> None:
    """Every documented attribute is there, times as aware datetimes."""
    job = Job(CLAIM, FakeServices())
    assert (job.id, job.queue, job.group, job.fence, job.headers) == ("a", "q", "g", "t", {"h": "1"})
    assert (job.attempt, job.retries, job.stalls, job.timeouts) == (3, 1, 1, 0)
    assert (job.created_at.timestamp(), job.run_at.timestamp()) == (1, 2)
    assert job.created_at.tzinfo is not None


async def test_cancelled_can_be_checked_and_awaited() -> None:
    """It is false until cancellation is requested, and awaiting it returns then."""
    cancelled = Cancellation()
    assert not cancelled
    waiting = asyncio.create_task(asyncio.wait_for(cancelled, 5))
    await asyncio.sleep(0)
    cancelled.request()
    assert await waiting
    assert cancelled


def test_a_log_line_is_checked() -> None:
    """A text that is no str and an unknown level are refused by name; a good line is passed on."""
    services = FakeServices()
    job = Job(CLAIM, services)
    job.log("one")
    job.log("two", "error")
    assert services.logged == [("one", "info"), ("two", "error")]
    with pytest.raises(TypeError, match="text"):
        job.log(1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="level"):
        job.log("x", "loud")  # type: ignore[arg-type]


async def test_progress_is_checked() -> None:
    """A fraction outside of 0 to 1 is refused by name; a good one is sent."""
    services = FakeServices()
    job = Job(CLAIM, services)
    assert await job.progress(0.5, "half")
    assert services.reported == [Progress(0.5, "half")]
    with pytest.raises(ValueError, match="fraction"):
        job.progress(1.5)
    with pytest.raises(TypeError, match="message"):
        job.progress(0.5, 7)  # type: ignore[arg-type]


def test_progress_survives_the_trip() -> None:
    """Progress comes back as it went; bytes that are none are no progress."""
    assert Progress.decode(Progress(0.25, "é").encode()) == Progress(0.25, "é")
    assert Progress.decode(b"\xc1") is None


def test_a_long_progress_message_is_cut() -> None:
    """A message is stored up to 1,000 characters, so that a report has a bounded size."""
    stored = Progress.decode(Progress(0.5, "é" * 1_001).encode())
    assert stored == Progress(0.5, "é" * 999 + "…")
    assert Progress.decode(Progress(0.5, "é" * 1_000).encode()) == Progress(0.5, "é" * 1_000)


def test_follow_ups_are_collected() -> None:
    """then() builds the job at once, keeps it for the end, and gives its id."""
    job = Job(CLAIM, FakeServices())
    assert job.then("next", 1, priority=3) == "next"
    assert [(n.queue, n.priority) for n in job.follow_ups] == [("next", 3)]
