"""`drain`: run all due jobs and return the events of their runs."""

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

#: Each run ends with one of these events.
OUTCOME_EVENTS = ("completed", "retrying", "failed", "cancelled")

#: How often a drain moves the clock at most: a job that schedules itself again would keep it running for ever.
MAX_CLOCK_MOVES = 10_000


@overload
def drain(app: Penstock, *, scheduled: bool = False) -> Coroutine[Any, Any, list[Event]]: ...


@overload
def drain(app: SyncPenstock, *, scheduled: bool = False) -> list[Event]: ...


def drain(app: AnyApp, *, scheduled: bool = False) -> Coroutine[Any, Any, list[Event]] | list[Event]:
    """Run jobs until none is due, those that they enqueue included; returns one event per run, in order.

    An `Event` is `completed`, `retrying`, `failed` or `cancelled`, and has `queue`, `id`, `attempt`,
    `result` and `error`. With `scheduled`, scheduled and retrying jobs are run too: a `Clock` is moved to
    each due time in turn; with any other clock, the drain waits for them.
    """
    return resolve_for(app, _drain(async_app_of(app), scheduled))


async def _drain(app: Penstock, scheduled: bool) -> list[Event]:
    worker = Worker(app)
    clock = app.clock
    with record_outcomes(app, worker) as outcomes:
        if not isinstance(clock, Clock):
            await worker.drain(scheduled)
            return outcomes
        await worker.drain()
        moves = 0
        while scheduled and (due := await _next_due(app)) is not None:
            moves += 1
            if moves > MAX_CLOCK_MOVES:
                raise RuntimeError(
                    f"jobs are still scheduled after {MAX_CLOCK_MOVES} moves of the clock; the last run: {outcomes[-1]}"
                )
            clock.advance(milliseconds=max(due - clock.time() * 1000, 0))
            await worker.drain()
    return outcomes


async def _next_due(app: Penstock) -> int | None:
    """Return the next due time (ms) of a scheduled or retrying job that this app's worker would run."""
    storage = await app.opened()
    found: list[int] = []
    for queue in app.handlers:
        if await storage.paused(queue) is None:
            for state in (State.SCHEDULED, State.RETRYING):
                found += [job.run_at for job in (await storage.find(queue, state, None, 1)).jobs]
    return min(found, default=None)


@contextlib.contextmanager
def record_outcomes(app: Penstock, worker: Worker) -> Generator[list[Event]]:
    """Yield a list to which the events of a worker's ended runs are added inside the block."""
    outcomes: list[Event] = []

    def record(event: Event) -> None:
        if event.worker == worker.id:
            outcomes.append(event)

    for name in OUTCOME_EVENTS:
        app.listeners.add(name, record)
    try:
        yield outcomes
    finally:
        for name in OUTCOME_EVENTS:
            app.listeners.remove(name, record)
