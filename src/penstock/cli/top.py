"""`penstock top`: queues with their rates, workers with their load, and what failed last, as it changes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections import deque
from collections.abc import Mapping
from typing import Any

import click

from penstock import Penstock, StorageUnavailable
from penstock.cli.base import Command, run
from penstock.cli.output import console, echo, echo_json, is_terminal, json_option
from penstock.cli.target import Target, describe_location, target_options
from penstock.cli.top_screen import Frame, plain_lines, render
from penstock.ops.overview import Overview, Rate, rates, read_overview

__all__ = ["top"]

#: Rates are those of the last so many seconds.
RATE_WINDOW = 5.0

#: The failures that are asked for; the screen shows as many as it has room for.
MAX_FAILURES = 10

#: So many past rates are drawn behind each queue.
HISTORY_LENGTH = 20


@click.command(
    cls=Command,
    examples="""
        penstock top
        penstock top --interval 0.5
        penstock top --once            # one look, as text
        penstock top --json | jq '.queues[] | {name, ending}'
    """,
)
@click.option("--interval", type=click.FloatRange(0.1), default=1.0, show_default=True, help="Seconds between looks.")
@click.option("--once", is_flag=True, help="Look once, for one interval, and print it.")
@json_option
@target_options
def top(target: Target, interval: float, once: bool, as_json: bool) -> None:
    """Watch queues, workers and failures, live, until Ctrl-C.

    Piped, or with --once or --json, it looks for one interval and prints what it saw.
    """
    if once or as_json or not is_terminal():
        frame = run(sample_once(target, interval))
        if as_json:
            echo_json(frame_json(frame))
        else:
            for line in plain_lines(frame):
                echo(line)
        return
    with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
        asyncio.run(run_screen(target, interval))


class OverviewSampler:
    """Looks again and again, and remembers enough to know how fast things go."""

    def __init__(self, app: Penstock) -> None:
        self._app = app
        self._overviews: deque[Overview] = deque()
        self._history: dict[str, deque[float]] = {}
        self._outage = ""

    async def sample(self) -> Frame:
        """What there is now; while the storage is away, what there was, and why nothing is new."""
        try:
            seen = await read_overview(self._app, failures=MAX_FAILURES)
        except StorageUnavailable as error:
            self._outage = str(error)
            if not self._overviews:
                raise
        else:
            self._outage = ""
            self._overviews.append(seen)
            while len(self._overviews) > 2 and (seen.at - self._overviews[1].at).total_seconds() >= RATE_WINDOW:
                self._overviews.popleft()
        return self.frame()

    def frame(self) -> Frame:
        """The newest look with its rates."""
        now = self._overviews[-1]
        found: Mapping[str, Rate] = rates(self._overviews[0], now) if len(self._overviews) > 1 else {}
        if len(self._overviews) > 1 and not self._outage:
            step = rates(self._overviews[-2], now)
            for name, rate in step.items():
                self._history.setdefault(name, deque(maxlen=HISTORY_LENGTH)).append(rate.ending)
        past = {name: list(values) for name, values in self._history.items()}
        return Frame(describe_location(self._app), now, dict(found), past, self._outage)


async def sample_once(target: Target, interval: float) -> Frame:
    """Two looks, so that there are rates."""
    async with target.opened() as app:
        watch = OverviewSampler(app)
        await watch.sample()
        await asyncio.sleep(interval)
        return await watch.sample()


async def run_screen(target: Target, interval: float) -> None:
    """The screen, until somebody ends it. Whatever ends it leaves the terminal as it was."""
    from rich.live import Live

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, task.cancel)
    async with target.opened() as app:
        watch = OverviewSampler(app)
        frame = await watch.sample()
        out = console()
        with Live(render(frame, out.size.height), console=out, screen=True, auto_refresh=False) as screen:
            while True:
                screen.update(render(frame, out.size.height), refresh=True)
                await asyncio.sleep(interval)
                frame = await watch.sample()


def frame_json(frame: Frame) -> dict[str, Any]:
    """One look for programs."""
    seen = frame.overview
    queues = [
        {
            "name": queue.name,
            "counts": {str(state): number for state, number in queue.counts.items()},
            "arriving": frame.rates[queue.name].arriving if queue.name in frame.rates else None,
            "ending": frame.rates[queue.name].ending if queue.name in frame.rates else None,
            "oldest_seconds": None if queue.oldest is None else max(0.0, (seen.at - queue.oldest).total_seconds()),
            "paused_since": queue.paused_since,
            "workers": queue.workers,
        }
        for queue in seen.queues
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
        for f in seen.failures
    ]
    return {"where": frame.where, "at": seen.at, "queues": queues, "workers": seen.workers, "failures": failures}
