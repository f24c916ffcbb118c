"""`penstock queue`: list, show, pause, resume and delete queues; `clear` is in `discard.py`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from penstock import JobStatus, Queue, State
from penstock.cli.base import EXIT_USAGE, CommandError, Group, confirm, run, yes_option
from penstock.cli.completion import queue_argument
from penstock.cli.discard import clear_queue
from penstock.cli.hints import hint_missing_queue, unknown_queue
from penstock.cli.output import (
    DIM,
    STYLES,
    Cell,
    Column,
    Styled,
    count,
    echo,
    echo_json,
    format_duration,
    format_time,
    is_terminal,
    json_option,
    print_record,
    print_table,
)
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType, parse_time
from penstock.model.clock import as_datetime
from penstock.ops.overview import QueueView, describe_empty, read_overview

__all__ = ["queue"]

STATES = (
    State.QUEUED, State.RUNNING, State.SCHEDULED, State.RETRYING, State.BLOCKED, State.COMPLETED, State.FAILED,
    State.CANCELLED,
)  # fmt: skip
ALWAYS_SHOWN = (State.QUEUED, State.RUNNING, State.COMPLETED, State.FAILED)


@click.group(cls=Group)
def queue() -> None:
    """Show queues; pause, resume, clear and delete them."""


queue.add_command(clear_queue)


@queue.command(
    "ls",
    examples="""
        penstock queue ls
        penstock queue ls --url redis://localhost:6379 --json | jq '.[].name'
    """,
)
@json_option
@target_options
def ls(target: Target, as_json: bool) -> None:
    """List the queues: jobs by state, age of the oldest due job, workers."""

    async def work() -> None:
        async with target.opened() as app:
            overview = await read_overview(app)
            empty = "" if overview.queues else await describe_empty(app)
        if as_json:
            echo_json([queue_json(view, overview.at) for view in overview.queues])
            return
        # A terminal is narrow: columns of rare states are shown there only if some queue needs them.
        states = [
            s for s in STATES if s in ALWAYS_SHOWN or not is_terminal() or any(v.counts[s] for v in overview.queues)
        ]
        columns = [Column("queue", elastic=True), *(Column(str(state), True) for state in states)]
        rows = [
            [Styled(v.name, "bold"), *count_cells(v, states), *status_cells(v, overview.at)] for v in overview.queues
        ]
        print_table([*columns, Column("waits", True), Column("workers", True), Column("")], rows, empty)

    run(work())


def count_cells(view: QueueView, states: Sequence[State] = STATES) -> list[Cell]:
    """Return the cells with the counts by state; zeros are dimmed."""
    return [Styled(f"{n:,}", STYLES[state] if n else DIM) for state in states for n in [view.counts[state]]]


def status_cells(view: QueueView, now: datetime) -> list[Cell]:
    """Return the cells after the counts: age of the next job, number of workers, and "paused"."""
    waits = Styled("-", DIM) if view.oldest is None else format_duration((now - view.oldest).total_seconds())
    unserved = not view.workers and bool(view.counts[State.QUEUED])
    workers = Styled(str(len(view.workers)), "bold red" if unserved else "")
    return [waits, workers, Styled("paused", "yellow") if view.paused_since else ""]


def queue_json(view: QueueView, now: datetime) -> dict[str, Any]:
    """Return a queue as it is printed with --json."""
    oldest = None if view.oldest is None else max(0.0, (now - view.oldest).total_seconds())
    return {
        "name": view.name,
        "counts": {str(state): view.counts[state] for state in STATES},
        "oldest_seconds": oldest,
        "paused_since": view.paused_since,
        "paused_until": view.paused_until,
        "workers": view.workers,
        "finished": view.finished,
        "overdue_leases": view.overdue,
    }


@queue.command("show", examples="penstock queue show mail")
@queue_argument
@json_option
@target_options
def show(target: Target, queue: str, as_json: bool) -> None:
    """Show one queue: its counts, its workers, and the next job."""

    async def work() -> tuple[QueueView, datetime, JobStatus | None]:
        async with target.opened() as app:
            overview = await read_overview(app, [queue])
            await hint_missing_queue(app, queue)
            return overview.queues[0], overview.at, await app.queue(queue).peek()

    view, now, first = run(work())
    if as_json:
        echo_json({**queue_json(view, now), "next": first and {"id": first.id, "state": first.state}})
        return
    pairs: list[tuple[str, Cell]] = [("queue", Styled(view.name, "bold"))]
    pairs += [(str(state), cell) for state, cell in zip(STATES, count_cells(view), strict=True)]
    if view.paused_since:
        end = f", until {format_time(view.paused_until, now)}" if view.paused_until else ""
        pairs.append(("paused", Styled(f"since {format_time(view.paused_since, now)}{end}", "yellow")))
    if view.oldest:
        pairs.append(("waiting", f"the next job since {format_time(view.oldest, now)}"))
    pairs.append(("next", first.id if first else Styled("none that may run now", DIM)))
    no_workers = Styled("none: no worker serves this queue", "yellow" if view.open else DIM)
    pairs.append(("workers", ", ".join(view.workers) if view.workers else no_workers))
    if view.overdue:
        pairs.append(("overdue", Styled(f"{count(view.overdue, 'expired lease')} not reaped yet", "yellow")))
    if view.damaged:
        pairs.append(("damaged", Styled(f"{count(view.damaged, 'record')} could not be read", "yellow")))
    print_record(pairs)


queues_argument = click.argument("queues", metavar="QUEUE...", nargs=-1, required=True)


group_option = click.option("--group", help="Only this group of each queue.")


@queue.command(
    "pause",
    examples="""
        penstock queue pause mail invoices
        penstock queue pause mail --for 10m --by "on call"
        penstock queue pause mail --group acme --until 2030-01-31T09:00
    """,
)
@queues_argument
@group_option
@click.option("--until", metavar="TIME", help="Resume at this time, local if it has no offset.")
@click.option("--for", "span", type=SpanType(0.001), help="Resume after this time, e.g. 90, 5m or 1h30m.")
@click.option("--by", default="", help="Who pauses it: shown by `penstock job why`.")
@json_option
@target_options(changes=True)
def pause(
    target: Target, queues: tuple[str, ...], group: str | None, until: str | None, span: float | None, by: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Start no more jobs of these queues, on any worker, until they are resumed. Running jobs go on.

    With --json, a list of objects: queue, group and changed.
    """
    if until is not None and span is not None:
        raise click.UsageError("give --until or --for, not both")
    end = None if until is None else parse_time(until, "--until")

    async def act(queue: Queue, now: datetime) -> bool:
        if end is not None and end <= now:
            raise CommandError(f"--until must be in the future, not {until!r}", EXIT_USAGE)
        return await queue.pause(group, end if span is None else now + timedelta(seconds=span), by)

    run(change_each(target, queues, group, act, "paused", "was paused already", as_json))


@queue.command(
    "resume",
    examples="""
        penstock queue resume mail
        penstock queue resume mail --group acme
    """,
)
@queues_argument
@group_option
@json_option
@target_options(changes=True)
def resume(target: Target, queues: tuple[str, ...], group: str | None, as_json: bool) -> None:
    """Let workers start jobs of these queues again.

    With --json, a list of objects: queue, group and changed.
    """

    async def act(queue: Queue, now: datetime) -> bool:
        return await queue.resume(group)

    run(change_each(target, queues, group, act, "resumed", "was not paused", as_json))


async def change_each(
    target: Target,
    queues: tuple[str, ...],
    group: str | None,
    act: Callable[[Queue, datetime], Awaitable[bool]],
    done: str,
    otherwise: str,
    as_json: bool,
) -> None:
    """Apply `act` to each queue and print one line for each: `done` if it changed, else `otherwise`; or all as JSON.

    `act` gets the storage's time, too. A hint on stderr names a queue that was unknown before.
    """
    changes: list[dict[str, Any]] = []
    async with target.opened() as app:
        for name in queues:
            hint = await unknown_queue(app, name)
            now = as_datetime(await app.storage.time())
            what = name if group is None else f"{name}, group {group}"
            changed = await act(app.queue(name), now)
            changes.append({"queue": name, "group": group, "changed": changed})
            if not as_json:
                echo(f"{what}: {done if changed else otherwise}")
            if hint is not None:
                echo(hint, err=True)
    if as_json:
        echo_json(changes)


@queue.command(
    "delete",
    examples="""
        penstock queue delete mail          # asks
        penstock queue delete mail --yes    # for scripts
        penstock queue delete mail --settings
    """,
)
@queue_argument
@click.option("--settings", is_flag=True, help="Remove its limits and schedules, too.")
@yes_option
@target_options(changes=True)
def delete(target: Target, queue: str, settings: bool, yes: bool) -> None:
    """Remove a queue and every job in it. Running handlers go on; their results are dropped."""

    async def work() -> None:
        async with target.opened() as app:
            jobs = sum((await app.queue(queue).counts()).values())
            if not jobs:
                await hint_missing_queue(app, queue)
                echo(f"{queue}: has no jobs")
            else:
                confirm(f"Delete {queue} with {count(jobs, 'job')}? They cannot be restored.", yes)
            echo(f"{queue}: deleted, {count(await app.queue(queue).delete(settings=settings), 'job')}")

    run(work())
