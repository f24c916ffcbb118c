"""Telling events as they happen: of everybody, or of one job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime

import click

from penstock import Event, JobStatus, Penstock, Progress, State
from penstock.cli.base import CommandError
from penstock.cli.output import count, echo_json, escape_controls, is_terminal
from penstock.cli.values import format_value
from penstock.model.job import FINISHED

__all__ = ["follow", "follow_job", "print_event"]

#: So often (seconds) a job is looked at for progress, which is no event, and for an end that was not heard.
POLL_INTERVAL = 1.0

COLOURS: dict[str, str] = {
    "completed": "green",
    "started": "cyan",
    **dict.fromkeys(("retrying", "stalled", "timed_out", "released", "skipped"), "yellow"),
    **dict.fromkeys(("failed", "error", "invalid_data", "lease_lost", "disconnected"), "red"),
    **dict.fromkeys(("cancelled", "cancel_requested", "queue_deleted", "idle", "no_queues"), "bright_black"),
}

#: The longest name of an event, so that what follows stands in a column.
NAME_WIDTH = 16


async def follow(stream: AsyncIterator[Event], *, as_json: bool, limit: int | None = None) -> None:
    """Tell events until there are no more, or so many were told."""
    told = 0
    async for event in stream:
        print_event(event, as_json=as_json)
        told += 1
        if limit is not None and told >= limit:
            return


def print_event(event: Event, *, as_json: bool, with_job: bool = True) -> None:
    """One event as one line."""
    if as_json:
        echo_json(event, line=True)
        return
    words: list[str] = []
    if with_job:
        words += [name for name in (event.queue, event.id) if name]
    if event.attempt:
        words.append(f"run {event.attempt}")
    if event.error is not None:
        words.append(f"{event.error.type}: {' '.join(event.error.message.split())[:200]}")
    if event.worker:
        words.append(f"by {event.worker}")
    print_line(event.at, event.name, "  ".join(words))


def print_line(at: datetime, name: str, rest: str) -> None:
    """A time, a name and the rest; in colour where somebody looks."""
    stamp, title = f"{at.astimezone():%H:%M:%S.%f}"[:-3], f"{name:<{NAME_WIDTH}}"
    if is_terminal():
        stamp, title = click.style(stamp, dim=True), click.style(title, fg=COLOURS.get(name))
    click.echo(f"{stamp}  {title}  {escape_controls(rest)}".rstrip())


async def follow_job(app: Penstock, queue: str, id: str, *, forever: bool, as_json: bool) -> State | None:
    """Tell how a job stands, then what happens to it; gives how it ended."""
    line = app.queue(queue)
    async with app.events(queue=queue) as stream:
        status = await line.status(id)
        if status is None and not forever:
            raise CommandError(f"there is no job {id!r} in queue {queue!r}; --forever waits for it")
        if status is not None:
            print_status(status, as_json)
        reporting = asyncio.create_task(report_progress(app, queue, id, as_json))
        try:
            while forever or (status is not None and status.state not in FINISHED):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_INTERVAL):
                        while (event := await anext(stream)).id != id:
                            pass
                        print_event(event, as_json=as_json, with_job=False)
                        if event.name not in FINISHED:
                            continue
                status = await line.status(id)
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
    if status is not None and status.state is State.COMPLETED and not as_json:
        click.echo(f"result: {escape_controls(format_value(status.result))}")
    return None if status is None else status.state


def print_status(status: JobStatus, as_json: bool) -> None:
    """The first line: how the job stands when somebody begins to listen."""
    if as_json:
        told = {"name": "status", "state": status.state, "at": status.created_at, "attempts": status.attempts}
        echo_json(told, line=True)
        return
    print_line(status.created_at, "enqueued", f"it is {status.state} now, {count(status.attempts, 'run')} so far")


async def report_progress(app: Penstock, queue: str, id: str, as_json: bool) -> None:
    """Tell progress when it changes."""
    last: Progress | None = None
    while True:
        status = await app.queue(queue).status(id)
        progress = None if status is None else status.progress
        if progress is not None and progress != last:
            if as_json:
                told = {"name": "progress", "fraction": progress.fraction, "message": progress.message}
                echo_json(told, line=True)
            else:
                click.echo(
                    f"{'':14}{'progress':<{NAME_WIDTH}}  {progress.fraction:.0%} {escape_controls(progress.message)}".rstrip()
                )
        last = progress
        await asyncio.sleep(POLL_INTERVAL)
