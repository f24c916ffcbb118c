"""The log of an outage: one line when the storage becomes unavailable, one when it has answered again."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

import pytest

from penstock import Event, Penstock, State, StorageError, StorageUnavailable, Worker
from penstock.host import AppHost
from penstock.testing import FaultyStorage
from penstock.worker.outage import OutageLog
from tests.support import eventually

AGAIN = "the storage can be reached again"
AWAY = StorageUnavailable("away")


class NoListeners:
    """An app without listeners."""

    def emit(self, name: str, **fields: Any) -> None:
        """Ignore the event."""


@pytest.fixture
def outage_log(caplog: pytest.LogCaptureFixture) -> OutageLog:
    caplog.set_level(logging.INFO, "penstock.worker")
    return OutageLog(cast("AppHost", NoListeners()), "w", lambda error: None)


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log lines about the storage, shortened."""
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.worker"]
    return ["again" if line == AGAIN else "away" for line in lines if line == AGAIN or "cannot be reached" in line]


def test_a_loop_without_a_call_does_not_end_the_outage(outage_log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    """A loop that failed and then made no call does not end the outage; an answer to any loop does."""
    outage_log.failed("leases", AWAY, 1)
    outage_log.went_well("leases", answered=False)
    outage_log.went_well("watch", answered=False)
    assert logged(caplog) == ["away"]
    outage_log.failed("claim", AWAY, 1)
    assert logged(caplog) == ["away"]
    outage_log.went_well("claim", answered=True)
    assert logged(caplog) == ["away", "again"]


def test_every_loop_that_failed_must_go_well(outage_log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    """While one loop still fails the outage goes on, though other loops succeed."""
    for loop in ("claim", "settle"):
        outage_log.failed(loop, AWAY, 1)
    outage_log.went_well("maintenance", answered=True)
    outage_log.went_well("settle", answered=True)
    outage_log.failed("settle", AWAY, 1)
    outage_log.went_well("claim", answered=True)
    assert logged(caplog) == ["away"]
    outage_log.went_well("settle", answered=True)
    assert logged(caplog) == ["away", "again"]


def test_the_same_error_is_logged_once(outage_log: OutageLog, caplog: pytest.LogCaptureFixture) -> None:
    """An error that is no outage is logged when it comes, when it changes, and when it comes back, not for each try."""

    def count() -> int:
        return len([record for record in caplog.records if record.levelno == logging.ERROR])

    for times in range(1, 4):
        outage_log.failed("claim", StorageError("damaged"), times)
    assert count() == 1
    outage_log.failed("settle", StorageError("damaged"), 1)
    outage_log.failed("claim", StorageError("worse"), 4)
    assert count() == 3
    outage_log.went_well("claim", answered=True)
    outage_log.failed("claim", StorageError("worse"), 1)
    assert count() == 4


async def test_the_outage_goes_on_while_no_call_is_answered(
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
        assert (logged(caplog), trouble.calls["renew"]) == (["away"], renewals)
        forever.set()
        trouble.down = False
        await eventually(lambda: logged(caplog) == ["away", "again"], within=30)


async def test_idle_is_emitted_after_the_last_outcome(app: Penstock, trouble: FaultyStorage) -> None:
    """`idle` is emitted after the outcomes are recorded and emitted, even if the storage is slow."""
    emitted: list[str] = []
    gate, asked = asyncio.Event(), asyncio.Event()
    real = app.storage.settle

    async def slow(settlements: Any) -> Any:
        asked.set()
        await gate.wait()
        return await real(settlements)

    trouble.settle = slow  # type: ignore[attr-defined]

    def receive(event: Event) -> None:
        emitted.append(event.name)

    app.on("idle")(receive)
    app.on("completed")(receive)
    app.listen("q", lambda payload: payload)
    app.listen("other", lambda payload: payload)
    async with Worker(app):
        await eventually(lambda: emitted == ["idle"])
        await app.queue("q").enqueue(1)
        await asyncio.wait_for(asked.wait(), 10)
        # Another look for work, while the outcome is being recorded.
        await app.queue("other").pause()
        claims = trouble.calls["claim"]
        await app.queue("other").enqueue(1)
        await app.queue("other").cancel_matching(1)
        await app.queue("other").resume()
        await eventually(lambda: trouble.calls["claim"] > claims, within=30)
        assert emitted == ["idle"]
        gate.set()
        await eventually(lambda: emitted == ["idle", "completed", "idle"], within=10)
    assert (await app.queue("q").counts())[State.COMPLETED] == 1
