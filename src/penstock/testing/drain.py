"""Running what is due, and saying what ran."""

from __future__ import annotations

import contextlib
from collections.abc import Coroutine, Generator
from typing import Any, overload

from penstock.client.app import Penstock
from penstock.model.events import Event
from penstock.model.job import State
from penstock.sync import Penstock as SyncPenstock
from penstock.testing.apps import AnyApp, async_app_of, resolve_for
from penstock.testing.clock import Clock
from penstock.worker import Worker

__all__ = ["drain", "record_outcomes"]

#: Each run ends with one of these.
OUTCOME_EVENTS = ("completed", "retrying", "failed", "cancelled")

#: A drain moves the clock so often, at most: jobs that enqueue themselves for later never come to an end.
MAX_CLOCK_MOVES = 10_000


@overload
def drain(app: Penstock, *, scheduled: bool = False) -> Coroutine[Any, Any, list[Event]]: ...


@overload
def drain(app: SyncPenstock, *, scheduled: bool = False) -> list[Event]: ...


def drain(app: AnyApp, *, scheduled: bool = False) -> Coroutine[Any, Any, list[Event]] | list[Event]:
    """Run everything that is due, and what comes of it, until nothing is; gives how each run ended, in order.

    An `Event` is `completed`, `retrying`, `failed` or `cancelled`, and has `queue`, `id`, `attempt`,
    `result` and `error`. With `scheduled` a `Clock` is moved from each due time to the next until nothing
    is left for later either; on any other clock they are waited for.
    """
    return resolve_for(app, _drain(async_app_of(app), scheduled))


async def _drain(app: Penstock, scheduled: bool) -> list[Event]:
    worker = Worker(app)
    clock = app.clock
    with record_outcomes(app, worker) as ends:
        if not isinstance(clock, Clock):
            await worker.drain(scheduled)
            return ends
        await worker.drain()
        moves = 0
        while scheduled and (due := await _next_due(app)) is not None:
            moves += 1
            if moves > MAX_CLOCK_MOVES:
                raise RuntimeError(
                    f"something is still scheduled after {MAX_CLOCK_MOVES} moves of the clock: last {ends[-1]}"
                )
            clock.advance(milliseconds=max(due - clock.time() * 1000, 0))
            await worker.drain()
    return ends


async def _next_due(app: Penstock) -> int | None:
    """When the first job for later is due (ms), of those that a worker here would run."""
    storage = await app.opened()
    found: list[int] = []
    for queue in app.handlers:
        if await storage.paused(queue) is None:
            for state in (State.SCHEDULED, State.RETRYING):
                found += [job.run_at for job in (await storage.find(queue, state, None, 1)).jobs]
    return min(found, default=None)


@contextlib.contextmanager
def record_outcomes(app: Penstock, worker: Worker) -> Generator[list[Event]]:
    """How the runs of a worker end, while this lasts."""
    ends: list[Event] = []

    def hear(event: Event) -> None:
        if event.worker == worker.id:
            ends.append(event)

    for name in OUTCOME_EVENTS:
        app.listeners.add(name, hear)
    try:
        yield ends
    finally:
        for name in OUTCOME_EVENTS:
            app.listeners.remove(name, hear)
