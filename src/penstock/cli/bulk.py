"""`penstock job bulk`: one verb on all jobs that fit a filter, with a preview and a question, and its list and stop."""

from __future__ import annotations

from datetime import datetime

import click

from penstock import BulkAction, BulkPreview
from penstock.cli.base import CommandError, Group, confirm, run, yes_option
from penstock.cli.job_list import datetime_of
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
from penstock.client.bulk import Bulk
from penstock.model.activity import BulkVerb
from penstock.model.clock import as_datetime

__all__ = ["bulk"]

COLUMNS = [
    Column("id"), Column("starts"), Column("who"), Column("verb"), Column("filter", elastic=True), Column("state"),
    Column("done", True), Column("of", True), Column("skipped", True), Column("failed", True),
]  # fmt: skip


@click.group("bulk", cls=Group)
def bulk() -> None:
    """Retry, cancel, delete or run now all jobs that fit a filter; list such actions, and stop one.

    `penstock job ls --help` explains filters.
    """


def add_verb(name: str, verb: BulkVerb, does: str) -> None:
    """Add the command of a verb."""

    @bulk.command(
        name,
        help=f"""{does}, in steps of 500.

        First it prints how many these are, and asks. Jobs that come after that are left out. `penstock job ls --help`
        explains filters. Ctrl-C stops it, and so does `penstock job bulk stop` in any process. Its end is in `penstock
        activity`. The exit code is 1 if it was stopped or failed.
        """,
        short_help=f"{does}.",
        examples=EXAMPLES[verb],
    )
    @click.argument("filter")
    @click.option("--dry-run", is_flag=True, help="Print how many jobs these are and five of them, and change nothing.")
    @yes_option
    @json_option
    @target_options
    def command(target: Target, filter: str, dry_run: bool, yes: bool, as_json: bool) -> None:
        act(target, verb, filter, dry_run=dry_run, yes=yes, as_json=as_json)


EXAMPLES: dict[BulkVerb, str] = {
    "retry": """
        penstock job bulk retry 'queue:mail state:failed type:ConnectionError'
        penstock job bulk retry 'queue:mail error_group:3f2a81c0aa55e1d2' --dry-run
    """,
    "cancel": "penstock job bulk cancel 'queue:mail state:queued payload.to:\"ann@example.org\"'",
    "run_now": "penstock job bulk run-now 'queue:mail state:retrying'",
    "delete": "penstock job bulk delete 'state:completed before:7d' --yes",
}


def act(target: Target, verb: BulkVerb, filter: str, *, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Preview an action, ask, run it, and print its end."""

    async def work() -> BulkPreview | BulkAction:
        async with target.opened() as app:
            action = Bulk(app, verb, filter, via="cli")
            look = await action.preview()
            if dry_run:
                return look
            confirm(question(look), yes)
            return await action.run()

    ended = run(work())
    if isinstance(ended, BulkPreview):
        print_preview(ended, as_json=as_json)
        return
    if as_json:
        echo_json(ended)
    else:
        error = f": {ended.error}" if ended.error else ""
        echo(f"{ended.state}: {count(ended.done, 'job')} changed, {ended.skipped} skipped{error}")
    if ended.state != "done":
        raise click.exceptions.Exit(1)


def print_preview(look: BulkPreview, *, as_json: bool) -> None:
    """Print what an action would do."""
    if as_json:
        fields = {name: getattr(look, name) for name in ("verb", "filter", "count", "exact", "as_of")}
        echo_json({**fields, "samples": [with_named_error(job) for job in look.samples]})
    else:
        echo(f"would {described(look)}; nothing was changed")


def question(look: BulkPreview) -> str:
    """Return the question before an action: the verb, the number of jobs, and some of their ids."""
    return f"{described(look)}?"


def described(look: BulkPreview) -> str:
    number = count(look.count, "job") if look.exact else f"at least {count(look.count, 'job')}"
    some = ", ".join(job.id for job in look.samples)
    return f"{look.verb.replace('_', '-')} {number}{f', such as {some}' if some else ''}"


VERBS: list[tuple[str, BulkVerb, str]] = [
    ("retry", "retry", "Queue all failed and cancelled jobs that fit a filter again, with all counts zero"),
    ("cancel", "cancel", "Cancel all waiting jobs that fit a filter"),
    ("run-now", "run_now", "Make all scheduled and retrying jobs that fit a filter due now"),
    ("delete", "delete", "Delete all jobs that fit a filter, but running ones, for good"),
]

for name, verb, does in VERBS:
    add_verb(name, verb, does)


@bulk.command(
    "ls",
    examples="""
        penstock job bulk ls
        penstock job bulk ls --json | jq '.[] | select(.state == "running") | .id'
    """,
)
@json_option
@target_options
def ls(target: Target, as_json: bool) -> None:
    """List the bulk actions of the last day, of commands, dashboards and programs, with their progress."""

    async def work() -> tuple[list[BulkAction], datetime]:
        async with target.opened() as app:
            return await app.bulk_actions(), datetime_of(await app.storage.time())

    found, now = run(work())
    if as_json:
        echo_json(found)
        return
    print_table(COLUMNS, [row(action, now) for action in found], "no bulk actions in the last day")


def row(action: BulkAction, now: datetime) -> list[Cell]:
    """Return the row of an action."""
    return [
        action.id,
        format_time(as_datetime(action.starts_at), now),
        action.who,
        action.verb.replace("_", "-"),
        action.filter,
        Styled(action.state, "green" if action.state == "done" else ""),
        f"{action.done:,}",
        Styled("-", DIM) if action.total is None else f"{action.total:,}",
        f"{action.skipped:,}",
        f"{action.failed:,}",
    ]


@bulk.command("stop", examples="penstock job bulk stop 0Ncj4Kd1b7Qe5sWm8xTa")
@click.argument("action", metavar="ID")
@json_option
@target_options(changes=True)
def stop(target: Target, action: str, as_json: bool) -> None:
    """Stop a bulk action before its next step, in whatever process it runs; changes that it has made stay.

    `penstock job bulk ls` has the ids. The exit code is 1 if there is none with this id, or if it has ended already.
    """

    async def work() -> BulkAction:
        async with target.opened() as app:
            before = {each.id: each.state for each in await app.bulk_actions(1000)}
            stopped = await app.stop_bulk(action)
        if stopped is None:
            raise CommandError(f"there is no bulk action {action!r}: `penstock job bulk ls` lists them")
        if before.get(action) not in ("waiting", "running"):
            raise CommandError(f"it has ended already: {stopped.state}, {count(stopped.done, 'job')} changed")
        return stopped

    stopped = run(work())
    if as_json:
        echo_json(stopped)
    else:
        echo(f"{stopped.state}: {count(stopped.done, 'job')} changed so far")
