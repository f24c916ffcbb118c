"""`penstock limit`: show, set and reset limits of families, queues and groups."""

from __future__ import annotations

import functools
from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import click

from penstock import EVERY, Limit, LimitInfo, Penstock
from penstock.cli.base import Group, run
from penstock.cli.completion import queue_argument, queue_names
from penstock.cli.hints import hint_missing_queue, unknown_queue
from penstock.cli.output import DIM, Cell, Column, Styled, echo, echo_json, format_duration, json_option, print_table
from penstock.cli.target import Target, target_options
from penstock.cli.values import IntegerType
from penstock.model.clock import as_datetime
from penstock.model.limit import EveryGroup

__all__ = ["describe_limit", "limit", "opening_cell", "running_cell"]

F = TypeVar("F", bound=Callable[..., Any])

COLUMNS = [
    Column("scope"), Column("name", elastic=True), Column("limit", elastic=True), Column("from"),
    Column("running", True), Column("waiting", True), Column("opens", True), Column(""),
]  # fmt: skip


@click.group(cls=Group)
def limit() -> None:
    """Show, set and reset limits."""


@limit.command(
    "ls",
    examples="""
        penstock limit ls mail
        penstock limit ls mail --json | jq '.[] | {scope, group, running}'
    """,
)
@queue_argument
@json_option
@target_options
def ls(target: Target, queue: str, as_json: bool) -> None:
    """List the limits that hold for a queue: of its family, its own, of each group, and of single groups."""

    async def work() -> tuple[list[LimitInfo], datetime]:
        async with target.opened() as app:
            found = await read_limits(app, queue)
            if not found:
                await hint_missing_queue(app, queue)
            return found, as_datetime(await app.storage.time())

    found, now = run(work())
    if as_json:
        echo_json(found)
        return
    print_table(COLUMNS, [row(info, now) for info in found], f"no limits hold for {queue}")


async def read_limits(app: Penstock, queue: str) -> list[LimitInfo]:
    """Return every limit that holds for a queue."""
    found: list[LimitInfo] = []
    after: str | None = None
    while True:
        page = await app.queue(queue).limits(after)
        found += page
        after = page.cursor
        if after is None:
            return found


def row(info: LimitInfo, now: datetime) -> list[Cell]:
    """Return the cells of one limit."""
    source = "changed" if info.changed is not None else "declared" if info.declared is not None else "-"
    return [
        info.scope,
        Styled(info.name if info.group is None else info.group, "bold"),
        Styled("-", DIM) if info.limit is None else describe_limit(info.limit),
        Styled(source, "" if info.changed is not None else DIM),
        running_cell(info),
        Styled("-", DIM) if info.scope == "groups" else f"{info.waiting:,}",
        opening_cell(info, now),
        Styled("paused", "yellow") if info.paused_since else "",
    ]


def describe_limit(limit: Limit) -> str:
    """Return a limit as text: its parts that are not the default, as in "5 at once, 10/s, burst 5"."""
    parts: list[str] = []
    if limit.concurrency is not None:
        parts.append(f"{limit.concurrency} at once")
    if limit.rate is not None:
        parts.append(f"{limit.rate}{' by cost' if limit.by == 'cost' else ''}")
    if limit.burst != 1:
        parts.append(f"burst {limit.burst}")
    if limit.weight != 1:
        parts.append(f"weight {limit.weight}")
    if limit.ordered is not None:
        parts.append("ordered" if limit.ordered else "unordered")
    return ", ".join(parts) or "none"


def running_cell(info: LimitInfo) -> Cell:
    """Return the number of runs, of the runs that may be; of every group the number of closed ones."""
    if info.scope == "groups":
        return Styled(f"{info.closed:,} closed", "yellow" if info.closed else DIM)
    most = None if info.limit is None else info.limit.concurrency
    if most is None:
        return f"{info.running:,}"
    return Styled(f"{info.running:,}/{most:,}", "yellow" if info.running >= most else "")


def opening_cell(info: LimitInfo, now: datetime) -> Cell:
    """Return in how many seconds a gate that is closed by its rate or a pause opens."""
    if info.opens_at is None:
        return Styled("-", DIM)
    return Styled(f"in {format_duration(max((info.opens_at - now).total_seconds(), 0.0))}", "yellow")


def scope_options(function: F) -> F:
    """Add the options that choose a scope; the command gets the queue, the group and the family."""

    @functools.wraps(function)
    def wrapped(queue: str | None, group: str | None, every_group: bool, family: str | None, **others: Any) -> Any:
        if (queue is None) == (family is None):
            raise click.UsageError("give a QUEUE, or --family")
        if family is not None and (group is not None or every_group):
            raise click.UsageError("--group and --every-group are for a QUEUE, not for --family")
        if group is not None and every_group:
            raise click.UsageError("give --group or --every-group, not both")
        return function(queue=queue, group=EVERY if every_group else group, family=family, **others)

    decorated: Any = wrapped
    for option in (
        click.option("--family", help="The family: all queues whose names begin with FAMILY/, together."),
        click.option("--every-group", is_flag=True, help="Each group of the queue that has no limit of its own."),
        click.option("--group", help="One group of the queue."),
        click.argument("queue", required=False, shell_complete=queue_names),
    ):
        decorated = option(decorated)
    return decorated


@limit.command(
    "set",
    examples="""
        penstock limit set mail --concurrency 20
        penstock limit set mail --every-group --concurrency 2 --rate 10/s --burst 5
        penstock limit set mail --group acme --concurrency 5 --weight 3
        penstock limit set --family llm --rate 500/min
    """,
)
@scope_options
@click.option("--concurrency", type=IntegerType(1), help="The most runs at once.  [default: no limit, of a group 1]")
@click.option("--rate", help="The most starts in a span of time, e.g. 10/s, 500/min, 1/day or 10/30s.")
@click.option("--burst", type=IntegerType(1), help="The starts that an unused rate saves up.  [default: 1]")
@click.option("--by", type=click.Choice(["starts", "cost"]), help="What the rate counts.  [default: starts]")
@click.option("--weight", type=IntegerType(1), help="The starts that a group gets in its turn.  [default: 1]")
@click.option("--unordered", is_flag=True, help="Jobs of a group need not wait for the end of the one before.")
@json_option
@target_options(changes=True)
def set_(
    target: Target, queue: str | None, group: str | EveryGroup | None, family: str | None, unordered: bool,
    as_json: bool, **parts: Any,
) -> None:  # fmt: skip
    """Limit a queue, its groups or a family, until it is reset.

    The limit replaces the one before, and wins over the one that the code declares. Running jobs go on.
    With --json, an object: queue, group, every_group, family and changed.
    """
    given = {name: value for name, value in parts.items() if value is not None}
    if unordered:
        given["ordered"] = False
    if not given:
        raise click.UsageError("give at least one of --concurrency, --rate, --weight and --unordered")
    wanted = Limit(**given)

    async def act(app: Penstock) -> bool:
        if family is not None:
            return await app.set_limit(family, wanted)
        return await app.queue(queue or "").set_limit(wanted, group=group)

    run(
        change(
            target, queue, group, family, act, f"limited: {describe_limit(wanted)}", "had this limit already", as_json
        )
    )


@limit.command(
    "reset",
    examples="""
        penstock limit reset mail
        penstock limit reset mail --group acme
        penstock limit reset --family llm
    """,
)
@scope_options
@json_option
@target_options(changes=True)
def reset(target: Target, queue: str | None, group: str | EveryGroup | None, family: str | None, as_json: bool) -> None:
    """Forget the limit that was set, so that the declared one holds again, or none.

    With --json, an object: queue, group, every_group, family and changed.
    """

    async def act(app: Penstock) -> bool:
        if family is not None:
            return await app.reset_limit(family)
        return await app.queue(queue or "").reset_limit(group)

    run(change(target, queue, group, family, act, "reset", "had no limit that was set", as_json))


async def change(
    target: Target,
    queue: str | None,
    group: str | EveryGroup | None,
    family: str | None,
    act: Callable[[Penstock], Any],
    done: str,
    otherwise: str,
    as_json: bool,
) -> None:
    """Carry out a change and print one line, `done` if it changed something, else `otherwise`; or an object as JSON."""
    what = f"family {family}" if family is not None else f"{queue}"
    if group is not None:
        what += ", every group" if group is EVERY else f", group {group}"
    async with target.opened() as app:
        hint = None if queue is None else await unknown_queue(app, queue)
        changed = await act(app)
        if as_json:
            every = group is EVERY
            name = None if every else group
            echo_json({"queue": queue, "group": name, "every_group": every, "family": family, "changed": changed})
        else:
            echo(f"{what}: {done if changed else otherwise}")
        if hint is not None:
            echo(hint, err=True)
