"""Live printing of events: those of the whole feed, or those of one job."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import datetime

import click

from penstock import Event, JobStatus, Penstock, Progress, State
from penstock.cli.base import CommandError
from penstock.cli.output import count, echo, echo_json, escape_controls, is_terminal, with_named_error
from penstock.cli.values import format_value
from penstock.model.job import FINISHED

__all__ = ["follow", "follow_job", "print_event"]

#: Seconds between two reads of a followed job: progress is no event, and the event of its end may be lost.
POLL_INTERVAL = 1.0

COLOURS: dict[str, str] = {
    "completed": "green",
    "started": "cyan",
    **dict.fromkeys(("retrying", "stalled", "timed_out", "released", "skipped"), "yellow"),
    **dict.fromkeys(("failed", "error", "invalid_data", "lease_lost", "disconnected"), "red"),
    **dict.fromkeys(("cancelled", "cancel_requested", "queue_deleted", "idle", "no_queues"), "bright_black"),
}

#: The length of the longest event name: what follows it is aligned.
NAME_WIDTH = 16


async def follow(stream: AsyncIterator[Event], *, as_json: bool, limit: int | None = None) -> None:
    """Print events until the stream ends, or `limit` of them were printed."""
    printed = 0
    async for event in stream:
        print_event(event, as_json=as_json)
        printed += 1
        if limit is not None and printed >= limit:
            return


def print_event(event: Event, *, as_json: bool, with_job: bool = True) -> None:
    """Print one event as one line."""
    if as_json:
        echo_json(with_named_error(event), line=True)
        return
    parts: list[str] = []
    if with_job:
        parts += [name for name in (event.queue, event.id) if name]
    if event.attempt:
        parts.append(f"run {event.attempt}")
    if event.error is not None:
        parts.append(f"{event.error.type}: {' '.join(event.error.message.split())[:200]}")
    if event.worker:
        parts.append(f"by {event.worker}")
    print_line(event.at, event.name, "  ".join(parts))


def print_line(at: datetime, name: str, rest: str) -> None:
    """Print a time, a name and details, in colour on a terminal."""
    stamp, title = f"{at.astimezone():%H:%M:%S.%f}"[:-3], f"{name:<{NAME_WIDTH}}"
    if is_terminal():
        stamp, title = click.style(stamp, dim=True), click.style(title, fg=COLOURS.get(name))
    click.echo(f"{stamp}  {title}  {escape_controls(rest)}".rstrip())  # the colours are of this function


async def follow_job(app: Penstock, queue: str, id: str, *, forever: bool, as_json: bool) -> State | None:
    """Print the state of a job, then its events; returns its final state, None if it is gone."""
    jobs = app.queue(queue)
    async with app.events(queue=queue) as stream:
        status = await jobs.status(id)
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
                status = await jobs.status(id)
        finally:
            reporting.cancel()
            await asyncio.wait({reporting})
    if status is not None and status.state is State.COMPLETED and not as_json:
        echo(f"result: {format_value(status.result)}")
    return None if status is None else status.state


def print_status(status: JobStatus, as_json: bool) -> None:
    """Print the first line: the state of the job before its next event."""
    if as_json:
        fields = {"name": "status", "state": status.state, "at": status.created_at, "attempts": status.attempts}
        echo_json(fields, line=True)
        return
    print_line(status.created_at, "enqueued", f"it is {status.state} now, {count(status.attempts, 'run')} so far")


async def report_progress(app: Penstock, queue: str, id: str, as_json: bool) -> None:
    """Print the progress of a job whenever it changes, until cancelled."""
    last: Progress | None = None
    while True:
        status = await app.queue(queue).status(id)
        progress = None if status is None else status.progress
        if progress is not None and progress != last:
            if as_json:
                fields = {"name": "progress", "fraction": progress.fraction, "message": progress.message}
                echo_json(fields, line=True)
            else:
                text = f"{progress.fraction:.0%} {progress.message}"
                echo(f"{'':14}{'progress':<{NAME_WIDTH}}  {text}".rstrip())
        last = progress
        await asyncio.sleep(POLL_INTERVAL)
