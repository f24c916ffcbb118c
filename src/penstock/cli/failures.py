"""`penstock failures`: jobs that failed alike, and their retry."""

from __future__ import annotations

import click

from penstock import FailureGroup, JobStatus, Page, Penstock
from penstock.cli.base import CommandError, Group, run
from penstock.cli.completion import queue_argument, queue_names
from penstock.cli.hints import hint_missing_queue, unknown_queue
from penstock.cli.output import (
    DIM,
    Cell,
    Column,
    Styled,
    count,
    echo,
    echo_json,
    format_time,
    json_option,
    print_table,
    with_named_error,
)
from penstock.cli.target import Target, target_options
from penstock.ops.failures import read_failures, retry_group

__all__ = ["failures"]

COLUMNS = [
    Column("queue"), Column("key"), Column("error", elastic=True), Column("kind"), Column("open", True),
    Column("of", True), Column("first"), Column("last"),
]  # fmt: skip

#: The characters of a key that are shown; a command takes any beginning of a key that is unique in its queue.
SHOWN = 8

key_argument = click.argument("key")


@click.group(cls=Group)
def failures() -> None:
    """Show jobs that failed alike, and retry them."""


@failures.command(
    "ls",
    examples="""
        penstock failures ls
        penstock failures ls mail --open
        penstock failures ls --json | jq '.[] | {queue, key, type, open}'
    """,
)
@click.argument("queue", required=False, shell_complete=queue_names)
@click.option("--open", "open_only", is_flag=True, help="Only groups with jobs that are failed now.")
@json_option
@target_options
def ls(target: Target, queue: str | None, open_only: bool, as_json: bool) -> None:
    """List error groups: jobs that failed with the same error at the same place, those with most open jobs first."""

    async def work() -> tuple[list[FailureGroup], bool]:
        async with target.opened() as app:
            found = await read_failures(app, queue, open_only=open_only)
            return found, queue is not None and not found and await hint_missing_queue(app, queue)

    found, missing = run(work())
    if as_json:
        echo_json(found)
    elif not missing:
        of = "" if queue is None else f" of {queue}"
        empty = f"no job{of} is failed now" if open_only else f"no job{of} has failed in the last 14 days"
        print_table(COLUMNS, [row(group) for group in found], empty)


def row(group: FailureGroup) -> list[Cell]:
    """Return the cells of one group."""
    return [
        group.queue, Styled(group.key[:SHOWN], "bold"), f"{group.type}: {group.message}", group.kind,
        Styled(f"{group.open:,}", "red" if group.open else DIM), f"{group.count:,}",
        f"{group.first_at:%Y-%m-%d %H:%M}", f"{group.last_at:%Y-%m-%d %H:%M}",
    ]  # fmt: skip


@failures.command("show", examples="penstock failures show mail 3f2a81c0")
@queue_argument
@key_argument
@json_option
@target_options
def show(target: Target, queue: str, key: str, as_json: bool) -> None:
    """Show an error group: its traceback, and the jobs that failed last."""

    async def work() -> tuple[FailureGroup, Page[JobStatus]]:
        async with target.opened() as app:
            group = await need_group(app, queue, key)
            return group, await app.queue(queue).failed_jobs(group.key, limit=20)

    group, jobs = run(work())
    if as_json:
        echo_json({"group": group, "jobs": [with_named_error(job) for job in jobs]})
        return
    echo(f"{group.type}: {group.message}")
    first, last = format_time(group.first_at), format_time(group.last_at)
    echo(f"{group.open:,} failed now of {group.count:,} in {group.queue}, first {first}, last {last}")
    if jobs and jobs[0].error is not None and jobs[0].error.traceback:
        for line in jobs[0].error.traceback.rstrip().splitlines():
            echo(f"  {line}")
    print_table(
        [Column("id"), Column("attempts", True), Column("failed")],
        [[job.id, f"{job.attempts}", f"{job.finished_at:%Y-%m-%d %H:%M:%S}"] for job in jobs],
        "none of its jobs is failed now",
    )


@failures.command("retry", examples="penstock failures retry mail 3f2a81c0")
@queue_argument
@key_argument
@json_option
@target_options(changes=True)
def retry(target: Target, queue: str, key: str, as_json: bool) -> None:
    """Queue all jobs of an error group that are failed now again, with all counts zero."""

    async def work() -> tuple[FailureGroup, int]:
        async with target.opened() as app:
            group = await need_group(app, queue, key)
            return group, await retry_group(app, queue, group.key)

    group, retried = run(work())
    if as_json:
        echo_json({"queue": queue, "key": group.key, "retried": retried})
        return
    echo(f"{queue}: {count(retried, 'job')} with {group.type} queued again")


async def need_group(app: Penstock, queue: str, key: str) -> FailureGroup:
    """Return the group with this key, or with one that begins so; ends the command if there is none, or several are."""
    groups = [group for group in await read_failures(app, queue) if group.key.startswith(key)]
    if not groups:
        unknown = await unknown_queue(app, queue)
        hint = f": {unknown}" if unknown else f"; `penstock failures ls {queue}` lists them"
        raise CommandError(f"no error group of {queue!r} has a key that begins with {key!r}{hint}")
    if len(groups) > 1:
        keys = ", ".join(group.key for group in groups[:5])
        raise CommandError(f"{len(groups)} error groups of {queue!r} have keys that begin with {key!r}: {keys}")
    return groups[0]
