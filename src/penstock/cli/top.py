"""`penstock top`: a live screen of queues with rates, workers with load, and the latest failures."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Collection, Mapping
from typing import Any

import click
import msgspec

from penstock import Penstock, StorageUnavailable
from penstock.cli.base import Command, run
from penstock.cli.completion import queue_names
from penstock.cli.controls import Controls, read_keys
from penstock.cli.output import console, echo, echo_json, is_terminal, json_option
from penstock.cli.target import Target, describe_location, target_options
from penstock.cli.top_screen import Frame, order_queues, plain_lines, render
from penstock.cli.values import SpanType
from penstock.ops.overview import Overview, QueueDetail, Rate, rates, read_detail, read_overview

__all__ = ["top"]

#: Rates are averages over this many seconds.
RATE_WINDOW = 5.0

#: How many failures, and of a chosen queue also error groups, are read; the screen shows as many as fit.
MAX_FAILURES = 10

#: How many limits of a queue are read.
MAX_LIMITS = 20

#: How many past rates are drawn as the sparkline of a queue.
HISTORY_LENGTH = 20


@click.command(
    cls=Command,
    examples="""
        penstock top
        penstock top --interval 0.5
        penstock top --queue mail --queue invoices
        penstock top --once            # print once, as text
        penstock top --json | jq '.queues[] | {name, ending}'
    """,
)
@click.option("--interval", type=SpanType(0.1), default="1s", show_default=True, help="The time between updates.")
@click.option("--queue", "queues", multiple=True, shell_complete=queue_names, help="Only this queue; repeatable.")
@click.option("--once", is_flag=True, help="Measure for one interval, print that, and exit.")
@json_option
@target_options
def top(target: Target, interval: float, queues: tuple[str, ...], once: bool, as_json: bool) -> None:
    """Watch queues, workers and failures, live, until q or Ctrl-C.

    Keys: q quits, s changes the order of the queues, / filters them by a part of their name. The arrows
    (or j and k) move to a queue, Enter shows it alone with its states, error groups and workers, and Esc goes back.

    Piped, or with --once or --json, it measures for one interval, prints that, and exits.
    """
    if once or as_json or not is_terminal():
        frame = run(sample_once(target, interval, queues))
        if as_json:
            echo_json(frame_json(frame))
        else:
            for line in plain_lines(frame):
                echo(line)
        return
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run_screen(target, interval, queues))


class OverviewSampler:
    """Repeated overviews of an app, of all queues or of those in `names`, kept for as long as rates need them."""

    def __init__(self, app: Penstock, names: Collection[str] = ()) -> None:
        self._app = app
        self._names = names
        self._overviews: deque[Overview] = deque()
        self._history: dict[str, deque[float]] = {}
        self._outage = ""
        self._chosen: str | None = None
        self._detail: QueueDetail | None = None

    async def sample(self) -> Frame:
        """Read a new overview; while the storage is unavailable, the last one is shown with the error."""
        try:
            overview = await read_overview(self._app, self._names or None, failures=MAX_FAILURES, limits=MAX_LIMITS)
        except StorageUnavailable as error:
            self._outage = str(error)
            if not self._overviews:
                raise
            return self.frame()
        self._outage = ""
        if self._names:
            workers = [worker for worker in overview.workers if not set(self._names).isdisjoint(worker.queues)]
            overview = msgspec.structs.replace(overview, workers=workers)
        self._overviews.append(overview)
        while len(self._overviews) > 2 and (overview.at - self._overviews[1].at).total_seconds() >= RATE_WINDOW:
            self._overviews.popleft()
        if len(self._overviews) > 1:
            for name, rate in rates(self._overviews[-2], overview).items():
                self._history.setdefault(name, deque(maxlen=HISTORY_LENGTH)).append(rate.ending)
        return await self.choose(self._chosen)

    async def choose(self, queue: str | None) -> Frame:
        """Read the details of one queue, from now on with each sample; None ends that."""
        self._chosen = queue
        try:
            self._detail = None if queue is None else await read_detail(self._app, queue, MAX_FAILURES)
        except StorageUnavailable as error:
            self._outage = str(error)
        return self.frame()

    def frame(self) -> Frame:
        """Return the newest overview with its rates, and the details of the chosen queue."""
        now = self._overviews[-1]
        found: Mapping[str, Rate] = rates(self._overviews[0], now) if len(self._overviews) > 1 else {}
        past = {name: list(values) for name, values in self._history.items()}
        return Frame(describe_location(self._app), now, dict(found), past, self._outage, self._detail)


async def sample_once(target: Target, interval: float, names: Collection[str]) -> Frame:
    """Return a frame with rates, which need two overviews."""
    async with target.opened() as app:
        sampler = OverviewSampler(app, names)
        await sampler.sample()
        await asyncio.sleep(interval)
        return await sampler.sample()


async def run_screen(target: Target, interval: float, names: Collection[str]) -> None:
    """Draw the screen until q, Ctrl-C or a signal; the terminal is restored in every case."""
    from rich.live import Live

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    controls, redraw = Controls(), asyncio.Event()

    def press(keys: str) -> None:
        controls.press(keys)
        redraw.set()
        if controls.quit:
            task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    loop.add_signal_handler(signal.SIGWINCH, redraw.set)
    async with target.opened() as app:
        sampler = OverviewSampler(app, names)
        frame = await sampler.sample()
        controls.list_queues = lambda: order_queues(frame, controls)
        out = console()
        with read_keys(press) as controls.has_keys, Live(console=out, screen=True, auto_refresh=False) as screen:
            chosen, due = None, loop.time() + interval
            while True:
                redraw.clear()
                screen.update(render(frame, *out.size, controls), refresh=True)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await redraw.wait()
                if controls.chosen != chosen:
                    chosen = controls.chosen
                    frame = await sampler.choose(chosen)
                if loop.time() >= due:
                    frame = await sampler.sample()
                    due = loop.time() + interval


def frame_json(frame: Frame) -> dict[str, Any]:
    """Return a frame as it is printed with --json."""
    overview = frame.overview
    queues = [
        {
            "name": queue.name,
            "counts": {str(state): number for state, number in queue.counts.items()},
            "arriving": frame.rates[queue.name].arriving if queue.name in frame.rates else None,
            "ending": frame.rates[queue.name].ending if queue.name in frame.rates else None,
            "oldest_seconds": None if queue.oldest is None else max(0.0, (overview.at - queue.oldest).total_seconds()),
            "paused_since": queue.paused_since,
            "paused_until": queue.paused_until,
            "next_tick": queue.next_tick,
            "workers": queue.workers,
        }
        for queue in overview.queues
    ]
    failures = [
        {
            "queue": f.queue,
            "id": f.id,
            "at": f.at,
            "attempts": f.attempts,
            "type": f.error.type,
            "message": f.error.message,
        }
        for f in overview.failures
    ]
    return {
        "where": frame.where,
        "at": overview.at,
        "queues": queues,
        "workers": overview.workers,
        "failures": failures,
        "closed_limits": overview.closed,
    }
