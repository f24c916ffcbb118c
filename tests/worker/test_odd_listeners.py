"""Listeners harm nothing, whatever they raise: jobs are recorded, and the worker stops."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from penstock import Event, Penstock, State, Worker
from penstock.model.events import Listeners
from penstock.sync import Penstock as SyncPenstock
from tests.support import eventually


class OwnBaseError(BaseException):
    """An exception that `except Exception` does not catch."""


ERRORS = [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit, OwnBaseError, StopIteration]


@pytest.mark.parametrize("style", ["plain", "async", "async and suspended"])
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: error.__name__)
async def test_a_listener_that_raises_anything_harms_nothing(
    app: Penstock, caplog: pytest.LogCaptureFixture, error: type[BaseException], style: str
) -> None:
    """Jobs complete and are retried, later listeners are called, `stop` ends, and each exception is logged."""
    seen: list[str] = []

    def broken(event: Event) -> None:
        raise error("listener")

    async def broken_async(event: Event) -> None:
        if "suspended" in style:
            await asyncio.sleep(0)
        raise error("listener")

    app.on("*")(broken if style == "plain" else broken_async)
    app.on("*")(lambda event: seen.append(event.name))

    @app.handler("q", max_retries=1, min_backoff=0)
    async def handle(payload: int) -> int:
        return 1 // payload

    caplog.set_level(logging.CRITICAL)
    caplog.set_level(logging.ERROR, "penstock")
    await app.queue("q").enqueue(0)
    await app.queue("q").enqueue(1)
    async with asyncio.timeout(20), Worker(app):
        await eventually(lambda: is_done(app))
    await app.listeners.wait_finished()
    assert {"enqueued", "started", "completed", "retrying", "failed"} <= set(seen)
    raised = [record for record in caplog.records if "a listener for" in record.message]
    assert len(raised) >= len(seen)


async def is_done(app: Penstock) -> bool:
    counts = await app.queue("q").counts()
    return (counts[State.COMPLETED], counts[State.FAILED]) == (1, 1)


async def test_an_async_listener_can_be_cancelled_from_outside() -> None:
    """A cancellation of its task, as by the end of the event loop, is not taken for an exception of the listener."""
    listeners, started = Listeners(), asyncio.Event()
    before = asyncio.all_tasks()

    async def wait(event: Event) -> None:
        started.set()
        await asyncio.Event().wait()

    listeners.add("completed", wait)
    listeners.emit(an_event())
    await started.wait()
    [task] = asyncio.all_tasks() - before
    task.cancel()
    await listeners.wait_finished()
    assert task.cancelled()


def test_a_thread_without_an_event_loop_gets_its_ctrl_c() -> None:
    """Ctrl-C during a slow listener of a sync app ends the call; other exceptions of listeners do not."""
    raised: list[type[BaseException]] = [SystemExit, KeyboardInterrupt]

    with SyncPenstock("memory:") as app:

        @app.on("enqueued")
        def broken(event: Event) -> None:
            raise raised.pop(0)

        assert app.queue("q").enqueue(1, id="a")
        with pytest.raises(KeyboardInterrupt):
            app.queue("q").enqueue(2, id="b")
        assert app.queue("q").counts()[State.QUEUED] == 2


def an_event() -> Any:
    from datetime import UTC, datetime

    return Event(name="completed", at=datetime.now(UTC))
