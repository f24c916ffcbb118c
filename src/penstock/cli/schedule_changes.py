"""`penstock schedule add` and `penstock schedule edit`: the options of a schedule on the command line."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from penstock import Cron, Every, ScheduleInfo
from penstock.cli.base import Command, run
from penstock.cli.completion import queue_argument
from penstock.cli.hints import unknown_queue
from penstock.cli.output import echo, format_time
from penstock.cli.target import Target, target_options
from penstock.cli.values import SpanType, parse_headers, parse_time, parse_value
from penstock.model.schedule import CATCH_UPS, OVERLAPS

__all__ = ["add", "edit"]


def schedule_options(function: Callable[..., Any]) -> Any:
    """Add the options of a schedule; the command gets those that were given as one dict, `options`."""

    @functools.wraps(function)
    def wrapped(
        cron: str | None, tz: str | None, every: float | None, start: str | None, end: str | None,
        header: tuple[str, ...], **others: Any,
    ) -> Any:  # fmt: skip
        given = {name: others.pop(name) for name in PLAIN if name in others}
        given["when"] = parse_when(cron, tz, every)
        given["headers"] = parse_headers(header)
        given["start"] = None if start is None else parse_time(start, "--start")
        given["end"] = None if end is None else parse_time(end, "--end")
        return function(options={name: value for name, value in given.items() if value is not None}, **others)

    decorated: Any = wrapped
    for option in reversed(
        [
            click.option("--cron", metavar="EXPR", help="When: 5 cron fields, or 6 with seconds first, or @daily."),
            click.option("--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]"),
            click.option("--every", type=SpanType(1), help="When: every so often, e.g. 90, 5m, 1h30m or 2d."),
            click.option("--payload", metavar="JSON", help="The payload of each job.  [default: null]"),
            click.option("--text", is_flag=True, help="Take the payload as plain text, not JSON."),
            click.option("--start", metavar="TIME", help="No tick before this time, local if it has no offset."),
            click.option("--end", metavar="TIME", help="No tick after this time, local if it has no offset."),
            click.option("--jitter", type=SpanType(), help="Delay each job by a part of this of its own."),
            click.option("--overlap", type=click.Choice(OVERLAPS), help="While a job is unfinished.  [default: skip]"),
            click.option("--catch-up", type=click.Choice(CATCH_UPS), help="Which late ticks fire.  [default: latest]"),
            click.option("--grace", type=SpanType(), help="How late a tick may be without being late.  [default: 30s]"),
            click.option("--most", type=int, help="With --catch-up all: how many late ticks.  [default: 100]"),
            click.option("--priority", type=int, help="Jobs with a higher number run first.  [default: 0]"),
            click.option("--group", help="Jobs of one group run one at a time, in order."),
            click.option("--timeout", type=SpanType(), help="How long a run may take.  [default: the handler's]"),
            click.option("--max-attempts", type=int, help="How often a job may run, retries and stalls included."),
            click.option("--max-retries", type=int, help="How often a job is run again after a failure."),
            click.option("--result-ttl", type=SpanType(), help="How long results are kept."),
            click.option("--header", metavar="NAME=VALUE", multiple=True, help="A header; may be given repeatedly."),
        ]
    ):
        decorated = option(decorated)
    return decorated


#: The options that are passed on as they are.
PLAIN = (
    "jitter", "overlap", "catch_up", "grace", "most", "priority", "group", "timeout", "max_attempts", "max_retries",
    "result_ttl",
)  # fmt: skip


def with_payload(target: Target, options: dict[str, Any], payload: str | None, text: bool) -> dict[str, Any]:
    """Return the options with the payload, if that was given."""
    if payload is None:
        return options
    return {**options, "payload": parse_value(payload, as_text=text, raw=target.serde == "raw")}


def parse_when(cron: str | None, tz: str | None, every: float | None) -> Cron | Every | None:
    """Return the times that were given, None if there are none."""
    if cron is not None and every is not None:
        raise click.UsageError("give --cron or --every, not both")
    if tz is not None and cron is None:
        raise click.UsageError("--tz is the time zone of --cron: give both")
    if cron is not None:
        return Cron(cron, tz=tz or "UTC")
    return None if every is None else Every(every)


@click.command(
    "add",
    cls=Command,
    examples="""
        penstock schedule add reports acme --cron '0 9 * * 1-5' --tz America/New_York --payload '{"tenant": "acme"}'
        penstock schedule add cleanup hourly --every 1h --jitter 5m
    """,
)
@queue_argument
@click.argument("name")
@schedule_options
@click.option("--at-once", is_flag=True, help="Put a job now, too.")
@target_options(serde=True, needs_app=True, changes=True)
def add(
    target: Target, queue: str, name: str, payload: str | None, text: bool, at_once: bool, options: dict[str, Any]
) -> None:
    """Create a schedule, or replace the one of this name."""
    options = with_payload(target, options, payload, text)
    if "when" not in options:
        raise click.UsageError("give --cron or --every")

    async def work() -> tuple[ScheduleInfo, str | None]:
        async with target.opened(create=True) as app:
            hint = await unknown_queue(app, queue)
            return await app.queue(queue).schedules.put(name, at_once=at_once, **options), hint

    info, hint = run(work())
    print_next(info)
    if hint is not None:
        echo(hint, err=True)


@click.command(
    "edit",
    cls=Command,
    examples="""
        penstock schedule edit reports nightly --cron '0 3 * * *' --tz Europe/Paris
        penstock schedule edit reports nightly --overlap queue --timeout 1h
    """,
)
@queue_argument
@click.argument("name")
@schedule_options
@target_options(serde=True, needs_app=True, changes=True)
def edit(target: Target, queue: str, name: str, payload: str | None, text: bool, options: dict[str, Any]) -> None:
    """Change some options of a schedule; those that are not given stay."""
    options = with_payload(target, options, payload, text)
    if not options:
        raise click.UsageError("give an option to change")

    async def work() -> ScheduleInfo:
        async with target.opened() as app:
            return await app.queue(queue).schedules.edit(name, **options)

    print_next(run(work()))


def print_next(info: ScheduleInfo) -> None:
    """Print one line about a schedule that was made or changed."""
    next_tick = f"next at {format_time(info.next_at)}" if info.next_at else "has no next tick"
    echo(f"{info.queue}/{info.name}: {next_tick}")
