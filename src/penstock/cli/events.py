"""`penstock events`: print the event feed of all processes, live."""

from __future__ import annotations

import asyncio
import contextlib

import click

from penstock.cli.base import Command
from penstock.cli.output import echo, is_terminal, json_option
from penstock.cli.tail import follow
from penstock.cli.target import Target, describe_location, target_options
from penstock.cli.values import IntegerType
from penstock.model.events import EVENTS, EventName

__all__ = ["events"]


@click.command(
    cls=Command,
    examples="""
        penstock events
        penstock events failed retrying --queue mail
        penstock events --json | jq -c 'select(.error)'
        penstock events completed --limit 1    # wait for the next one
    """,
)
@click.argument("names", metavar="[NAME...]", nargs=-1, type=click.Choice(EVENTS))
@click.option("--queue", help="Only events of this queue.")
@click.option("--limit", type=IntegerType(1), help="Stop after this many events.")
@json_option
@target_options
def events(target: Target, names: tuple[EventName, ...], queue: str | None, limit: int | None, as_json: bool) -> None:
    """Print the events of all processes, one line each, until Ctrl-C.

    Payloads are not shown. Events of other names and queues cost the storage nothing.
    """

    async def work() -> None:
        async with target.opened() as app, app.events(names or None, queue) as stream:
            if is_terminal() and not as_json:
                echo(f"listening at {describe_location(app)}; stop with Ctrl-C", err=True)
            await follow(stream, as_json=as_json, limit=limit)

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work())
