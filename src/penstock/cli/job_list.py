"""`penstock job ls`: the jobs of a queue, or those of all queues that fit a filter."""

from __future__ import annotations

import datetime
import shlex

import click

from penstock import JobStatus, State
from penstock.cli.base import EXIT_USAGE, Command, CommandError, run
from penstock.cli.completion import optional_queue_argument
from penstock.cli.hints import hint_missing_queue
from penstock.cli.output import (
    DIM,
    STYLES,
    Cell,
    Column,
    Styled,
    bar,
    count,
    echo,
    echo_json,
    format_duration,
    is_terminal,
    json_option,
    print_table,
    with_named_error,
)
from penstock.cli.target import Target, target_options
from penstock.cli.values import IntegerType
from penstock.client.job_filter import FilterError, find_jobs, parse_filter, quote_value
from penstock.model.job import StateName

__all__ = ["datetime_of", "ls", "remarks"]


@click.command(
    "ls",
    cls=Command,
    examples="""
        penstock job ls mail
        penstock job ls mail --state failed --limit 20
        penstock job ls --filter 'state:failed type:ConnectionError payload.to:"ann@example.org"'
        penstock job ls mail --json | jq '.jobs[].id'
    """,
)
@optional_queue_argument
@click.option("--filter", metavar="FILTER", help="Only jobs that fit this filter; without QUEUE in all queues.")
@click.option("--state", type=click.Choice([str(state) for state in State]), help="Only jobs in this state.")
@click.option("--limit", type=IntegerType(1, 1000), default=50, show_default=True, help="Maximum number of jobs.")
@click.option("--after", metavar="CURSOR", help="List the page after the one that printed this cursor.")
@json_option
@target_options(serde=True)
def ls(
    target: Target, queue: str | None, filter: str | None, state: StateName | None, limit: int, after: str | None,
    as_json: bool,
) -> None:  # fmt: skip
    """List the jobs of a queue in the order in which they run; finished ones come last. Without QUEUE, of all queues.

    A filter has words `key:value`, with the keys queue, state, group, id, worker, type, kind, error, error_group,
    release, header.NAME, payload.PATH, result.PATH, before and after, and free words; all must fit. A value that ends
    with * is a prefix. At most 2,000 jobs are looked at; --after goes on.

    A queue exists while it has jobs, a pause or a worker. If there is no such queue, that is printed on stderr,
    and the exit code is 0.
    """

    if queue is None or filter is not None:
        run(list_filtered(target, queue, filter_text(queue, state, filter), after, limit, as_json=as_json))
        return

    async def work() -> None:
        async with target.opened() as app:
            page = await app.queue(queue).find(state, after, limit)
            now = datetime_of(await app.storage.time())
            missing = not page and after is None and await hint_missing_queue(app, queue)
        if as_json:
            echo_json({"jobs": [with_named_error(status) for status in page], "cursor": page.cursor})
        if as_json or missing:
            return
        print_table(
            COLUMNS, [row(status, now) for status in page], f"no jobs in {queue}{f' are {state}' if state else ''}"
        )
        if page.cursor:
            echo(f"more jobs: --after {page.cursor}", err=not is_terminal())

    run(work())


def filter_text(queue: str | None, state: str | None, filter: str | None) -> str:
    """Return one filter from the queue, the state and the filter of a command."""
    parts = [
        None if queue is None else f"queue:{quote_value(queue)}",
        None if state is None else f"state:{state}",
        filter,
    ]
    return " ".join(part for part in parts if part)


async def list_filtered(
    target: Target, queue: str | None, text: str, after: str | None, limit: int, *, as_json: bool
) -> None:
    """List the jobs that fit a filter, and how many were looked at if there may be more."""
    try:
        wanted = parse_filter(text)
        async with target.opened() as app:
            page = await find_jobs(app, wanted, after, limit)
            now = datetime_of(await app.storage.time())
            missing = queue is not None and not page.looked and await hint_missing_queue(app, queue)
    except FilterError as error:
        raise CommandError(str(error), EXIT_USAGE) from None
    if as_json:
        echo_json({"jobs": [with_named_error(job) for job in page.jobs], "cursor": page.cursor, "looked": page.looked})
    if as_json or missing:
        return
    rows = [[job.queue, *row(job, now)] for job in page.jobs]
    print_table([Column("queue", elastic=True), *COLUMNS], rows, "no job fits")
    if page.cursor:
        echo(f"looked at {count(page.looked, 'job')}; go on: --after {shlex.quote(page.cursor)}", err=not is_terminal())


COLUMNS = [
    Column("id", elastic=True), Column("state"), Column("group"), Column("prio", True), Column("age", True),
    Column("due"), Column("runs", True), Column("about", elastic=True),
]  # fmt: skip


def datetime_of(ms: int) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(ms / 1000, datetime.UTC)


def row(status: JobStatus, now: datetime.datetime) -> list[Cell]:
    """Return the row of a job."""
    due = ""
    if status.state in (State.SCHEDULED, State.RETRYING):
        due = f"in {format_duration((status.run_at - now).total_seconds())}"
    return [
        status.id,
        Styled(str(status.state), STYLES[status.state]),
        status.group or Styled("-", DIM),
        str(status.priority) if status.priority else Styled("-", DIM),
        format_duration((now - status.created_at).total_seconds()),
        due,
        str(status.attempts) if status.attempts else Styled("-", DIM),
        remarks(status),
    ]


def remarks(status: JobStatus) -> Cell:
    """Return the progress of a job, else its error, else its worker."""
    if status.progress is not None:
        message = f" {status.progress.message}" if status.progress.message else ""
        return f"{bar(status.progress.fraction, 1)} {status.progress.fraction:.0%}{message}"
    if status.error is not None:
        message = " ".join(status.error.message.split())
        return Styled(f"{status.error.type}: {message[:80]}", "red" if status.state is State.FAILED else "yellow")
    return status.worker or ""
