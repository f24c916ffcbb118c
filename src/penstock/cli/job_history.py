"""`penstock job attempts`, `job log` and `job run-now`: the histories of a job, and a job that need not wait."""

from __future__ import annotations

import asyncio
import contextlib

import click

from penstock import Attempt, Line, Penstock
from penstock.cli.base import Command, CommandError, run
from penstock.cli.completion import queue_argument
from penstock.cli.output import (
    Cell,
    Column,
    count,
    echo,
    echo_json,
    format_duration,
    format_time,
    json_option,
    print_table,
)
from penstock.cli.target import Target, target_options
from penstock.client.bulk import run_now
from penstock.storage.recording import need_recording

__all__ = ["attempts", "job_log", "run_jobs_now", "show_changes"]

#: By the name of a number of changed jobs: what happened to them, and why others were refused.
CHANGES = {"due": ("due now", "neither scheduled nor retrying"), "retried": ("queued again", "not retried")}

#: How long (seconds) one wait for further lines is.
WAIT = 10.0

COLUMNS = [
    Column("attempt", True), Column("outcome"), Column("ended"), Column("took", True), Column("worker"),
    Column("error", elastic=True),
]  # fmt: skip


@click.command(
    "attempts",
    cls=Command,
    examples="""
        penstock job attempts mail welcome-42
        penstock job attempts mail welcome-42 --json | jq -r '.[].error.traceback'
    """,
)
@queue_argument
@click.argument("id")
@json_option
@target_options
def attempts(target: Target, queue: str, id: str, as_json: bool) -> None:
    """List the attempts of a job that did not complete: when, where, how they ended, and their errors.

    The first and the last 19 are kept, as long as the job.
    """

    async def work() -> list[Attempt]:
        async with target.opened() as app:
            await require(app, queue, id)
            return await app.queue(queue).attempts(id)

    found = run(work())
    if as_json:
        echo_json(found)
    else:
        print_table(COLUMNS, [attempt_row(each) for each in found], f"no attempt of {id} has failed")


def attempt_row(attempt: Attempt) -> list[Cell]:
    """Return the row of an attempt."""
    took = (
        "" if attempt.started_at is None else format_duration((attempt.ended_at - attempt.started_at).total_seconds())
    )
    error = "" if attempt.error is None else f"{attempt.error.type}: {' '.join(attempt.error.message.split())}"
    return [str(attempt.number), attempt.outcome, format_time(attempt.ended_at), took, attempt.worker, error]


async def require(app: Penstock, queue: str, id: str) -> None:
    """Raise a `CommandError` if there is no such job."""
    if await app.queue(queue).status(id) is None:
        raise CommandError(f"there is no job {id!r} in queue {queue!r}")


@click.command(
    "log",
    cls=Command,
    examples="""
        penstock job log reports monday
        penstock job log reports monday -f                   # follow it until the job has ended
        penstock job log reports monday --json | jq -r .text
    """,
)
@queue_argument
@click.argument("id")
@click.option("--follow", "-f", is_flag=True, help="Print further lines as they come, until the job has ended.")
@json_option
@target_options
def job_log(target: Target, queue: str, id: str, follow: bool, as_json: bool) -> None:
    """Print the lines that the runs of a job have logged, by `job.log` or by captured loggers.

    The last 1,000 lines or 256 KiB are kept, as long as the job. With --json each line is an object. `penstock job
    watch` prints the job's events and progress.
    """

    async def work() -> None:
        async with target.opened() as app:
            await require(app, queue, id)
            last = 0
            while True:
                status = await app.queue(queue).status(id)
                for line in await app.queue(queue).log(id, after=last):
                    print_line(line, as_json=as_json)
                    last = line.n
                if not follow or status is None or status.state in ("completed", "failed", "cancelled"):
                    return
                await need_recording(app.storage).wait_history(queue, id, "log", last, WAIT)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())


def print_line(line: Line, *, as_json: bool) -> None:
    """Print a line of a log."""
    if as_json:
        echo_json(line, line=True)
        return
    level = "" if line.level == "info" else f" {line.level.upper()}"
    echo(f"{format_time(line.at)} #{line.attempt}{level} {line.text}")


@click.command(
    "run-now",
    cls=Command,
    examples="""
        penstock job run-now mail welcome-42
    """,
)
@queue_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@json_option
@target_options(changes=True)
def run_jobs_now(target: Target, queue: str, ids: tuple[str, ...], as_json: bool) -> None:
    """Make scheduled and retrying jobs due now. The exit code is 1 if one of them is in another state."""

    async def work() -> None:
        async with target.opened() as app:
            refused = [id for id in ids if not await run_now(app.storage, queue, [id])]
            await show_changes(app, queue, len(ids) - len(refused), refused, "due", as_json=as_json)

    run(work())


async def show_changes(
    app: Penstock, queue: str, changed: int, refused: list[str], verb: str, *, as_json: bool
) -> None:
    """Print how many jobs were changed; raises `CommandError` with the states of those that were refused."""
    found = [(id, await app.queue(queue).status(id)) for id in refused]
    states = {id: None if status is None else status.state for id, status in found}
    change, reason = CHANGES[verb]
    if as_json:
        echo_json({"queue": queue, verb: changed, "refused": [{"id": id, "state": states[id]} for id in refused]})
    else:
        echo(f"{queue}: {count(changed, 'job')} {change}")
    if refused:
        clauses = [f"{id!r} " + ("does not exist" if state is None else f"is {state}") for id, state in states.items()]
        raise CommandError(f"{reason}: {', '.join(clauses)}")
