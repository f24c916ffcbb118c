"""Two workers with one id: both warn, and the list of workers marks them."""

from __future__ import annotations

import logging

import pytest

from penstock import Penstock, Worker
from penstock.worker import identity, maintenance
from penstock.worker.identity import default_id, is_generated
from tests.support import eventually


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send heartbeats and check ids many times a second."""
    monkeypatch.setattr(maintenance, "BEAT", 0.02)
    monkeypatch.setattr(maintenance, "REAP", (0.01, 0.01))
    monkeypatch.setattr(identity, "FIRST_CHECK", 0.05)
    monkeypatch.setattr(identity, "CHECK", 0.02)


async def is_marked(app: Penstock) -> bool:
    return [worker.duplicate for worker in await app.workers()] == [True]


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return caplog.text.count("another live worker has the id w (host ")


async def test_two_live_workers_with_one_id_warn_once_each(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """Both log one warning and their record is marked; when one has stopped the mark is removed."""
    app.listen("q", len)
    caplog.set_level(logging.WARNING, "penstock")
    async with Worker(app, id="w"):
        async with Worker(app, id="w"):
            await eventually(lambda: warnings(caplog) == 2)
            await eventually(lambda: is_marked(app))

        async def is_unmarked() -> bool:
            return [worker.duplicate for worker in await app.workers()] == [False]

        await eventually(is_unmarked)
    assert warnings(caplog) == 2


async def test_a_worker_restarted_under_its_id_does_not_warn(
    app: Penstock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that a killed worker left is replaced without a warning."""
    looks: list[float] = []
    compare = identity.IdCheck.look

    async def look(check: identity.IdCheck, now: float) -> None:
        await compare(check, now)
        looks.append(now)

    monkeypatch.setattr(identity.IdCheck, "look", look)
    app.listen("q", len)
    caplog.set_level(logging.WARNING, "penstock")
    left = maintenance.Heartbeat(host="h", pid=1, instance="killed")
    await app.storage.beat("w", 25_000, left.encode())
    async with Worker(app, id="w"):
        await eventually(lambda: len(looks) > 10)
    assert not warnings(caplog)


def test_a_generated_id_is_unique_to_its_process() -> None:
    """Ids that this process has generated are known, and need no check."""
    assert is_generated(default_id())
    assert not is_generated("worker-1")
