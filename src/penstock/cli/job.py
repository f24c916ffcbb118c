"""`penstock job`: list, show, explain, cancel, retry and follow jobs; `delete` is in `discard.py`."""

from __future__ import annotations

import contextlib
import datetime
from typing import Any

import click

from penstock import JobStatus, Penstock, State
from penstock.cli.base import CommandError, Group, confirm, run, yes_option
from penstock.cli.bulk import bulk
from penstock.cli.completion import queue_argument
from penstock.cli.discard import delete_jobs
from penstock.cli.job_history import attempts, job_log, run_jobs_now, show_changes
from penstock.cli.job_list import datetime_of, ls, remarks
from penstock.cli.output import (
    DIM,
    STYLES,
    Cell,
    Lines,
    Styled,
    count,
    echo,
    echo_json,
    format_duration,
    format_time,
    json_option,
    print_record,
    with_named_error,
)
from penstock.cli.tail import follow_job
from penstock.cli.target import Target, target_options
from penstock.cli.values import format_value
from penstock.cli.wait import wait
from penstock.model.why import Why
from penstock.storage.base import CANCEL_MODES, CancelMode

__all__ = ["job"]

#: How many failed jobs `retry --all` reads and retries at a time.
PAGE = 1000


@click.group(cls=Group)
def job() -> None:
    """Show jobs; cancel, retry and delete them."""


job.add_command(delete_jobs)


job.add_command(wait)


for command in (ls, attempts, job_log, run_jobs_now, bulk):
    job.add_command(command)


@job.command(
    "show",
    examples="""
        penstock job show mail welcome-42
        penstock job show mail welcome-42 --json | jq .payload
    """,
)
@queue_argument
@click.argument("id")
@json_option
@target_options(serde=True)
def show(target: Target, queue: str, id: str, as_json: bool) -> None:
    """Show one job: payload, counts, result or error."""
    status, now = run(read_job(target, queue, id))
    if as_json:
        echo_json(with_named_error(status))
        return
    pairs: list[tuple[str, Cell]] = [
        ("job", Styled(status.id, "bold")),
        ("queue", status.queue),
        ("state", Styled(str(status.state), STYLES[status.state])),
        ("enqueued", format_time(status.created_at, now)),
        ("due", format_time(status.run_at, now)),
        *([("expires", format_time(status.start_by, now))] if status.start_by is not None else []),
        *run_times(status, now),
        ("counts", ", ".join(count_texts(status))),
    ]
    pairs += [(name, str(value)) for name in ("group", "priority", "worker") if (value := getattr(status, name))]
    if status.cost > 1:
        pairs.append(("cost", str(status.cost)))
    if (tick := status.tick) is not None:
        by_hand = ", by hand" if tick.manual else ""
        pairs.append(("tick", f"{format_time(tick.nominal)} of schedule {tick.schedule}{by_hand}"))
    if status.headers:
        pairs.append(("headers", ", ".join(f"{key}={value}" for key, value in status.headers.items())))
    if status.progress is not None:
        pairs.append(("progress", remarks(status)))
    pairs.append(("payload", format_value(status.payload)))
    if status.state is State.COMPLETED:
        pairs.append(("result", Styled(format_value(status.result), "green")))
    if status.error is not None:
        pairs.append(("error", Styled(f"{status.error.type}: {status.error.message} ({status.error.kind})", "red")))
        if status.error.traceback:
            pairs.append(("traceback", Lines(status.error.traceback.rstrip(), DIM)))
    print_record(pairs)


def run_times(status: JobStatus, now: datetime.datetime) -> list[tuple[str, Cell]]:
    """Return when the last run of a job was claimed, when the job ended, and how long that took."""
    pairs: list[tuple[str, Cell]] = []
    if status.started_at is not None:
        pairs.append(("started", format_time(status.started_at, now)))
    if status.finished_at is not None:
        took = "" if status.duration is None else f", took {format_duration(status.duration.total_seconds())}"
        pairs.append(("finished", f"{format_time(status.finished_at, now)}{took}"))
    return pairs


def count_texts(status: JobStatus) -> list[str]:
    """Return the counts of a job that are not zero, as in "2 runs" and "1 retry"."""
    texts = [count(status.attempts, "run")]
    for number, one in ((status.retries, "retry"), (status.stalls, "stall"), (status.timeouts, "timeout")):
        if number:
            texts.append(count(number, one, "retries" if one == "retry" else None))
    return texts


async def read_job(target: Target, queue: str, id: str) -> tuple[JobStatus, datetime.datetime]:
    """Return a job and the storage's time; a `CommandError` if there is no such job."""
    async with target.opened() as app:
        return await require_job(app, queue, id), datetime_of(await app.storage.time())


async def require_job(app: Penstock, queue: str, id: str) -> JobStatus:
    """Return the job; a `CommandError` if there is none."""
    status = await app.queue(queue).status(id)
    if status is None:
        raise CommandError(
            f"there is no job {id!r} in queue {queue!r}: never enqueued, deleted, or finished and no longer kept"
        )
    return status


@job.command(
    "why",
    examples="""
        penstock job why mail welcome-42
        penstock job why mail welcome-42 --json | jq -r .reason
    """,
)
@queue_argument
@click.argument("id")
@json_option
@target_options
def why(target: Target, queue: str, id: str, as_json: bool) -> None:
    """Explain why a job is not running: the one reason, and what must change first."""

    async def work() -> Why:
        async with target.opened() as app:
            await require_job(app, queue, id)
            answer = await app.queue(queue).why(id)
        if answer is None:
            raise CommandError(f"there is no job {id!r} in queue {queue!r} any more")
        return answer

    answer = run(work())
    if as_json:
        echo_json(answer)
    else:
        echo(str(answer))


@job.command(
    "cancel",
    examples="""
        penstock job cancel mail welcome-42
        penstock job cancel mail welcome-42 --running signal    # ask a running handler to end
    """,
)
@queue_argument
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--running",
    type=click.Choice(list(CANCEL_MODES)),
    default="refuse",
    show_default=True,
    help="What to do with a running job: refuse to cancel it, let this run end without a retry (forget), "
    "ask its handler to end (signal), or end its run by force (kill).",
)
@yes_option
@json_option
@target_options(changes=True)
def cancel(target: Target, queue: str, ids: tuple[str, ...], running: CancelMode, yes: bool, as_json: bool) -> None:
    """Cancel waiting jobs. `penstock job retry` undoes that while the cancelled job is kept."""
    if running in ("forget", "kill"):
        confirm(f"--running {running} cannot be undone for running jobs. Go on?", yes)

    async def work() -> list[Any]:
        async with target.opened() as app:
            return [await app.queue(queue).cancel(id, running) for id in ids]

    answers = run(work())
    if as_json:
        echo_json(answers)
    else:
        for answer in answers:
            echo(f"{answer.id}: {'already ' if answer.already else ''}{answer.status.replace('_', ' ')}")
    if not all(answer or answer.requested or answer.already for answer in answers):
        raise click.exceptions.Exit(1)


@job.command(
    "retry",
    examples="""
        penstock job retry mail welcome-42
        penstock job retry mail --all              # every failed job of the queue
        penstock job retry mail --all --yes        # without asking
        penstock job retry mail welcome-42 --completed
    """,
)
@queue_argument
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Retry every failed job of the queue.")
@click.option("--completed", is_flag=True, help="Also retry jobs that completed; their results are dropped.")
@yes_option
@json_option
@target_options(changes=True)
def retry(
    target: Target, queue: str, ids: tuple[str, ...], every: bool, completed: bool, yes: bool, as_json: bool
) -> None:
    """Queue failed or cancelled jobs again, with all counts zero. The exit code is 1 if one of them was not."""
    if every == bool(ids):
        raise click.UsageError("give the ids of jobs, or --all, not both")
    if every and completed:
        raise click.UsageError("--completed goes with the ids of jobs, not with --all, which retries failed jobs")

    async def work() -> None:
        async with target.opened() as app:
            refused: list[str] = []
            if every:
                failed = (await app.queue(queue).counts())[State.FAILED]
                if failed:
                    confirm(f"Run {count(failed, 'failed job')} of {queue} again?", yes)
                retried = await retry_all(app, queue, failed)
            else:
                refused = [id for id in ids if not await app.queue(queue).retry(id, completed=completed)]
                retried = len(ids) - len(refused)
            await show_changes(app, queue, retried, refused, "retried", as_json=as_json)

    run(work())


async def retry_all(app: Penstock, queue: str, failed: int) -> int:
    """Retry `failed` failed jobs and return their number.

    The limit ends the loop although retried jobs may fail again meanwhile.
    """
    total = 0
    while total < failed:
        page = await app.queue(queue).find(State.FAILED, None, min(PAGE, failed - total))
        retried = await app.queue(queue).retry([status.id for status in page])
        if not retried:
            break
        total += retried
    return total


@job.command(
    "watch",
    examples="""
        penstock job watch mail welcome-42              # until the job has ended
        penstock job watch mail welcome-42 --forever    # also wait for the job, and for it being enqueued again
    """,
)
@queue_argument
@click.argument("id")
@click.option("--forever", is_flag=True, help="Go on after the job has ended, until Ctrl-C.")
@json_option
@target_options
def watch(target: Target, queue: str, id: str, forever: bool, as_json: bool) -> None:
    """Print the events and progress of one job, live, until it has ended.

    `penstock job log` prints the lines that its runs have logged. The exit code is 1 if the job failed or was
    cancelled.
    """

    async def work() -> State | None:
        async with target.opened() as app:
            return await follow_job(app, queue, id, forever=forever, as_json=as_json)

    final_state = None
    with contextlib.suppress(KeyboardInterrupt):
        final_state = run(work())
    if final_state in (State.FAILED, State.CANCELLED):
        raise click.exceptions.Exit(1)
