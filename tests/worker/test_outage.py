"""What is told of a storage that is away: one line when it goes, one when it is back for certain."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from penstock import Event, Penstock, State, StorageError, StorageUnavailable, Worker
from penstock.host import AppHost
from penstock.testing import FaultyStorage
from penstock.worker.outage import OutageLog as Reporter
from tests.support import eventually

AGAIN = "the storage can be reached again"
AWAY = StorageUnavailable("away")


class Silent:
    """An app that nobody listens to."""

    def emit(self, name: str, **fields: Any) -> None:
        """Say nothing."""


@pytest.fixture
def reporter(caplog: pytest.LogCaptureFixture) -> Reporter:
    caplog.set_level(logging.INFO, "penstock.worker")
    return Reporter(cast("AppHost", Silent()), "w")


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines about the storage, in short."""
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.worker"]
    return ["again" if line == AGAIN else "away" for line in lines if line == AGAIN or "cannot be reached" in line]


def test_a_loop_without_a_question_cannot_say_that_the_storage_is_back(
    reporter: Reporter, caplog: pytest.LogCaptureFixture
) -> None:
    """A loop that failed and then had nothing to ask is no sign; an answer to any loop is."""
    reporter.failed("leases", AWAY, 1)
    reporter.went_well("leases", answered=False)
    reporter.went_well("watch", answered=False)
    assert told(caplog) == ["away"]
    reporter.failed("claim", AWAY, 1)
    assert told(caplog) == ["away"]
    reporter.went_well("claim", answered=True)
    assert told(caplog) == ["away", "again"]


def test_every_loop_that_failed_must_go_well(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    """While one loop still fails the storage is not back, whatever others say."""
    for loop in ("claim", "settle"):
        reporter.failed(loop, AWAY, 1)
    reporter.went_well("maintenance", answered=True)
    reporter.went_well("settle", answered=True)
    reporter.failed("settle", AWAY, 1)
    reporter.went_well("claim", answered=True)
    assert told(caplog) == ["away"]
    reporter.went_well("settle", answered=True)
    assert told(caplog) == ["away", "again"]


def test_the_same_error_is_told_once(reporter: Reporter, caplog: pytest.LogCaptureFixture) -> None:
    """An error that is no outage is told when it comes, when it changes, and when it comes back, not for each try."""

    def count() -> int:
        return len([record for record in caplog.records if record.levelno == logging.ERROR])

    for times in range(1, 4):
        reporter.failed("claim", StorageError("damaged"), times)
    assert count() == 1
    reporter.failed("settle", StorageError("damaged"), 1)
    reporter.failed("claim", StorageError("worse"), 4)
    assert count() == 3
    reporter.went_well("claim", answered=True)
    reporter.failed("claim", StorageError("worse"), 1)
    assert count() == 4


async def test_nothing_is_said_to_be_back_while_it_is_away(
    app: Penstock, trouble: FaultyStorage, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that loses its leases in an outage, and then has nothing to renew, stays disconnected."""
    caplog.set_level(logging.INFO, "penstock.worker")
    started, lost, forever = asyncio.Event(), asyncio.Event(), asyncio.Event()
    app.on("lease_lost")(lambda event: lost.set())

    @app.handler("q", concurrency=1)
    async def handle(payload: int) -> None:
        started.set()
        await forever.wait()

    await app.queue("q").enqueue_many([1, 2])
    async with Worker(app, lease=0.5):
        await started.wait()
        trouble.down = True
        await asyncio.wait_for(lost.wait(), 30)
        renewals = trouble.calls["renew"]
        claims = trouble.calls["claim"]
        await eventually(lambda: trouble.calls["claim"] > claims + 2, within=30)
        assert (told(caplog), trouble.calls["renew"]) == (["away"], renewals)
        forever.set()
        trouble.down = False
        await eventually(lambda: told(caplog) == ["away", "again"], within=30)


async def test_idle_is_told_after_the_last_outcome(app: Penstock, trouble: FaultyStorage) -> None:
    """A worker is idle when its outcomes are recorded and told, even if the storage takes its time over them."""
    heard: list[str] = []
    gate, asked = asyncio.Event(), asyncio.Event()
    real = app.storage.settle

    async def slow(settlements: Any) -> Any:
        asked.set()
        await gate.wait()
        return await real(settlements)

    trouble.settle = slow  # type: ignore[attr-defined]

    def hear(event: Event) -> None:
        heard.append(event.name)

    app.on("idle")(hear)
    app.on("completed")(hear)
    app.listen("q", lambda payload: payload)
    app.listen("other", lambda payload: payload)
    async with Worker(app):
        await eventually(lambda: heard == ["idle"])
        await app.queue("q").enqueue(1)
        await asyncio.wait_for(asked.wait(), 10)
        # Another look for work, while the outcome is on its way.
        await app.queue("other").pause()
        claims = trouble.calls["claim"]
        await app.queue("other").enqueue(1)
        await app.queue("other").cancel_matching(1)
        await app.queue("other").resume()
        await eventually(lambda: trouble.calls["claim"] > claims, within=30)
        assert heard == ["idle"]
        gate.set()
        await eventually(lambda: heard == ["idle", "completed", "idle"], within=10)
    assert (await app.queue("q").counts())[State.COMPLETED] == 1
