"""app.log_events and app.workers: what people look at."""

from __future__ import annotations

import logging
import os
import socket
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Penstock, PermanentError, Worker
from penstock.model.worker_info import Heartbeat
from penstock.testing import Clock
from tests.support import Backend, eventually

HOME = "penstock.events"


async def work(app: Penstock) -> None:
    """Run one job that completes and one that fails; their payloads, results and headers are secrets."""
    if not app.handlers:

        @app.handler("q")
        async def handle(payload: str) -> str:
            if payload == "secret 1":
                raise PermanentError("no\n" + "x" * 1000)
            return "secret 2"

    await app.queue("q").enqueue("secret 0", headers={"key": "secret 3"})
    await app.queue("q").enqueue("secret 1", id="b\n")
    await Worker(app, id="w").drain()


async def test_each_event_is_one_line(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A line starts with the event's name, is bounded, and holds no payload, result or header."""
    caplog.set_level(logging.DEBUG, HOME)
    app.log_events()
    await work(app)
    records = [record for record in caplog.records if record.name == HOME]
    lines = [record.getMessage() for record in records]
    assert [line.split()[0] for line in lines] == ["enqueued"] * 2 + ["started"] * 2 + ["completed", "failed"]
    assert not [line for line in lines if "secret" in line or "\n" in line or len(line) > 400]
    assert lines[-1].startswith(r"failed queue='q' id='b\n' attempt=1 error='PermanentError: no\nxxx")
    assert lines[-1].endswith("worker='w'")
    last: Any = records[-1]
    assert (last.event, last.queue, last.job_id, last.attempt, last.worker) == ("failed", "q", "b\n", 1, "w")
    assert (last.error_type, len(last.error_message)) == ("PermanentError", 200)
    assert not [record for record in records if "secret" in repr(vars(record))]
    assert [record.levelname for record in records] == ["INFO"] * 5 + ["ERROR"]


async def test_levels_and_exclusions(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """One level for all, or for some; what is excluded is not logged; any logger will do."""
    caplog.set_level(1, "mine")
    caplog.set_level(1, "yours")
    app.log_events("mine", level={"failed": "warning"}, exclude=["enqueued", "started"])
    app.log_events(logging.getLogger("yours"), level=logging.DEBUG, exclude="started")
    await work(app)
    found = [(r.name, r.levelname, r.getMessage().split()[0]) for r in caplog.records if r.name in ("mine", "yours")]
    assert [each[1:] for each in found if each[0] == "mine"] == [("INFO", "completed"), ("WARNING", "failed")]
    assert {each[1] for each in found if each[0] == "yours"} == {"DEBUG"}
    assert len([each for each in found if each[0] == "yours"]) == 4


async def test_a_log_goes_off_and_on(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """off() and on() are idempotent, a with block logs inside of it, and afterwards no listener is left (QF-33)."""
    caplog.set_level(logging.INFO, HOME)
    log = app.log_events(exclude=["started", "completed", "failed"])
    log.on()
    log.off()
    log.off()
    assert not app.listeners
    await app.queue("q").enqueue(1)
    log.on()
    await app.queue("q").enqueue(1, id="a")
    log.off()
    with log:
        await app.queue("q").enqueue(1, id="b")
    await app.queue("q").enqueue(1)
    assert [r.job_id for r in caplog.records if r.name == HOME] == ["a", "b"]  # type: ignore[attr-defined]


def test_bad_arguments_are_refused() -> None:
    """Unknown names and levels are refused, and nothing listens afterwards."""
    app = Penstock("memory:")
    with pytest.raises(ValueError, match="exclude: unknown event 'done'"):
        app.log_events(exclude=["done"])
    with pytest.raises(ValueError, match="level: unknown event 'done'"):
        app.log_events(level={"done": 10})
    with pytest.raises(ValueError, match="level must be"):
        app.log_events(level="LOUD")
    assert not app.listeners


@pytest.mark.only("memory", "sqlite", "redis")
async def test_a_running_worker_is_listed(app: Penstock, clock: Clock, backend: Backend) -> None:
    """A worker is listed while it works, with where it is, what it serves and how busy it is."""
    app.listen("b", lambda payload: None)
    app.listen("a", lambda payload: None)
    assert await app.workers() == []
    async with Worker(app, id="w", capacity=50):
        await eventually(app.workers)
        [info] = await app.workers()
        now = datetime.fromtimestamp(clock.time(), UTC)
        assert (info.id, info.host, info.pid) == ("w", socket.gethostname(), os.getpid())
        assert (info.queues, info.capacity, info.busy) == (["a", "b"], 50, 0)
        assert (info.started_at, info.seen_at) == (now, now)
        assert info.until > now
    assert await app.workers() == []


async def test_a_worker_with_an_unreadable_heartbeat_is_listed() -> None:
    """Words that cannot be read, or are those of another version, hide no worker."""
    async with Penstock("memory:") as app:
        await app.storage.beat("mute", 1000)
        await app.storage.beat("odd", 1000, b"\xff")
        found = await app.workers()
    assert [(info.id, info.host, info.queues, info.started_at) for info in found] == [
        ("mute", "", [], None),
        ("odd", "", [], None),
    ]
    assert Heartbeat.decode(Heartbeat(host="h", pid=1, busy=3).encode()) == Heartbeat(host="h", pid=1, busy=3)
