"""`penstock job delete` and `penstock queue clear`: delete jobs for good."""

from __future__ import annotations

import click

from penstock import Discarded, State
from penstock.cli.base import Command, confirm, run, yes_option
from penstock.cli.completion import queue_argument
from penstock.cli.output import count, echo, echo_json, format_duration, json_option
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType
from penstock.model.job import StateName

__all__ = ["clear_queue", "delete_jobs"]

CLEARABLE = [state for state in State if state is not State.RUNNING]
FINISHED = (State.COMPLETED, State.FAILED, State.CANCELLED)


@click.command(
    "delete",
    cls=Command,
    examples="""
        penstock job delete mail welcome-42          # asks
        penstock job delete mail welcome-42 --yes    # for scripts
    """,
)
@queue_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@yes_option
@json_option
@target_options(changes=True)
def delete_jobs(target: Target, queue: str, ids: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Delete jobs for good, whether they wait or have finished. Running jobs are refused: cancel them.

    The exit code is 1 if one of the jobs was not deleted.
    """
    confirm(f"Delete {count(len(ids), 'job')} of {queue}? They cannot be restored.", yes)

    async def work() -> list[Discarded]:
        async with target.opened() as app:
            return await app.queue(queue).discard(ids)

    answers = run(work())
    if as_json:
        echo_json(answers)
    else:
        texts = {"discarded": "deleted", "running": "is running; cancel it instead", "not_found": "not found"}
        for answer in answers:
            echo(f"{answer.id}: {texts[answer.status]}")
    if not all(answers):
        raise click.exceptions.Exit(1)


@click.command(
    "clear",
    cls=Command,
    examples="""
        penstock queue clear mail --state failed --older-than 7d
        penstock queue clear mail --yes     # every finished job, without asking
    """,
)
@queue_argument
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice([str(state) for state in CLEARABLE]),
    help="Delete jobs in this state; may be given repeatedly.  [default: completed, failed and cancelled]",
)
@click.option(
    "--older-than",
    type=SpanType(),
    help="Only jobs that ended, or if unfinished were enqueued, at least this long ago, e.g. 90, 5m, 1h30m or 7d.",
)
@yes_option
@target_options(changes=True)
def clear_queue(target: Target, queue: str, states: tuple[StateName, ...], older_than: float | None, yes: bool) -> None:
    """Delete the finished jobs of a queue, or those in the given states. Running jobs stay."""
    chosen: tuple[State | StateName, ...] = states or FINISHED

    async def work() -> None:
        async with target.opened() as app:
            counts = await app.queue(queue).counts()
            jobs = sum(counts[State(state)] for state in chosen)
            if jobs:
                confirm(_question(queue, jobs, chosen, older_than), yes)
            echo(f"{queue}: {count(await app.queue(queue).clear(chosen, older_than=older_than), 'job')} deleted")

    run(work())


def _question(queue: str, jobs: int, states: tuple[str, ...], older_than: float | None) -> str:
    """Return the question before a clear; with an age the number of jobs is an upper bound."""
    if older_than is None:
        which = f"{count(jobs, 'job')} of {queue} ({', '.join(states)})"
    else:
        age = format_duration(older_than)
        which = f"those of the {count(jobs, 'job')} of {queue} ({', '.join(states)}) that are older than {age}"
    return f"Delete {which}? They cannot be restored."
