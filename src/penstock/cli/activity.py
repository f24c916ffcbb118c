"""`penstock activity` and `penstock release`: the audit log, and marks of releases."""

from __future__ import annotations

import click

from penstock import Activity
from penstock.cli.base import Command, run
from penstock.cli.output import Cell, Column, echo, echo_json, format_time, is_terminal, json_option, print_table
from penstock.cli.target import Target, target_options
from penstock.cli.values import IntegerType
from penstock.client.answers import Page
from penstock.model.clock import as_datetime

__all__ = ["activity", "release"]

COLUMNS = [
    Column("time"), Column("who"), Column("via"), Column("verb"), Column("queue"), Column("what", elastic=True),
    Column("outcome", elastic=True),
]  # fmt: skip


@click.command(
    cls=Command,
    examples="""
        penstock activity
        penstock activity --queue mail --limit 20
        penstock activity --queue mail --id welcome-42    # of one job
        penstock activity --json | jq '.entries[] | {who, verb}'
    """,
)
@click.option("--queue", help="Only entries about this queue.")
@click.option("--id", help="Only entries that list this job of --queue.")
@click.option("--limit", type=IntegerType(1, 1000), default=50, show_default=True, help="Maximum number of entries.")
@click.option("--after", metavar="CURSOR", help="List the page after the one that printed this cursor.")
@json_option
@target_options
def activity(target: Target, queue: str | None, id: str | None, limit: int, after: str | None, as_json: bool) -> None:
    """List what operators have changed, newest first: who, when, through what, and how it ended.

    Commands that change something and the dashboard write it. It keeps 10,000 entries for 90 days, without payloads.
    """
    if id is not None and queue is None:
        raise click.UsageError("--id needs --queue")

    async def work() -> Page[Activity]:
        async with target.opened() as app:
            return await app.activity(queue, id, after, limit)

    page = run(work())
    if as_json:
        echo_json({"entries": list(page), "cursor": page.cursor})
        return
    print_table(COLUMNS, [row(entry) for entry in page], "no activity yet")
    if page.cursor:
        echo(f"older entries: --after {page.cursor}", err=not is_terminal())


def row(entry: Activity) -> list[Cell]:
    """Return the row of an entry."""
    ids = ", ".join(entry.ids) + (f" and {entry.count - len(entry.ids)} more" if entry.count > len(entry.ids) else "")
    what = " ".join(part for part in (entry.target, ids) if part)
    return [
        format_time(as_datetime(entry.at)),
        entry.who or "unknown",
        entry.via,
        entry.verb,
        entry.queue or "",
        what,
        entry.outcome,
    ]


@click.command(
    cls=Command,
    examples="""
        penstock release v1.4.2
        penstock release           # list the last ones
    """,
)
@click.argument("name", required=False)
@json_option
@target_options(changes=True)
def release(target: Target, name: str | None, as_json: bool) -> None:
    """Note that a release begins now, or list the last 50: marks on charts, and for `release:` in filters.

    Workers note the value of PENSTOCK_RELEASE when they start, so that this command is needed without it only.
    """

    async def work() -> None:
        if name is not None:
            async with target.opened(create=True) as app:
                added = await app.add_release(name)
            if as_json:
                echo_json({"name": name, "added": added})
            else:
                echo(f"{name}: noted" if added else f"{name}: noted before")
            return
        async with target._replace(changes=False).opened() as app:
            found = await app.releases()
        if as_json:
            echo_json(found)
        else:
            rows: list[list[Cell]] = [[format_time(as_datetime(each.at)), each.name] for each in found]
            print_table([Column("since"), Column("release", elastic=True)], rows, "no releases yet")

    run(work())
