"""`penstock schedule`: list and show schedules, their next ticks, pause, resume and remove them, and ticks by hand."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, TypeVar

import click
import msgspec
from msgspec import UNSET

from penstock import Cron, Every, ScheduleInfo, ScheduleNotFound, Schedules
from penstock.cli.base import Group, confirm, run, yes_option
from penstock.cli.completion import queue_argument, queue_names
from penstock.cli.output import (
    DIM,
    Cell,
    Column,
    Styled,
    count,
    echo,
    echo_json,
    format_duration,
    format_time,
    json_option,
    print_record,
    print_table,
)
from penstock.cli.schedule_changes import add, edit
from penstock.cli.target import Target, target_options
from penstock.cli.values import IntegerType, format_value, parse_time, parse_value
from penstock.model.cron import zone_of
from penstock.model.schedule import OVERLAPS

__all__ = ["schedule"]

T = TypeVar("T")


@click.group(cls=Group)
def schedule() -> None:
    """Show schedules; add, edit, pause, trigger and remove them."""


schedule.add_command(add)
schedule.add_command(edit)

name_argument = click.argument("name")


@schedule.command(
    "ls",
    examples="""
        penstock schedule ls
        penstock schedule ls reports --json | jq '.[].next_at'
    """,
)
@click.argument("queue", required=False, shell_complete=queue_names)
@json_option
@target_options
def ls(target: Target, queue: str | None, as_json: bool) -> None:
    """List the schedules of a queue, or of all: when they tick, and what became of their ticks."""

    async def work() -> list[ScheduleInfo]:
        async with target.opened() as app:
            found = await app.schedules()
            return [each for each in found if queue is None or each.queue == queue]

    found = run(work())
    if as_json:
        echo_json([schedule_json(each) for each in found])
        return
    columns = [
        Column("queue", elastic=True), Column("name", elastic=True), Column("when", elastic=True), Column("next"),
        Column("last"), Column("fired", True), Column("skipped", True), Column("missed", True), Column(""),
    ]  # fmt: skip
    now = datetime.now(UTC)
    print_table(columns, [row_of(each, now) for each in found], "there are no schedules")


def row_of(info: ScheduleInfo, now: datetime) -> list[Cell]:
    """Return the cells of a schedule in the list."""
    counts = (info.fired, info.skipped, info.missed)
    return [
        info.queue,
        Styled(info.name, "bold"),
        format_when(info.when),
        format_time(info.next_at, now),
        format_time(info.last_at, now),
        *(Styled(f"{number:,}", "" if number else DIM) for number in counts),
        Styled(condition_of(info), "yellow"),
    ]


def condition_of(info: ScheduleInfo) -> str:
    """Return "retired", "paused" or nothing."""
    return "retired" if info.retired_since else "paused" if info.paused_since else ""


def format_when(when: Cron | Every | str) -> str:
    """Return the times of a schedule as text."""
    if isinstance(when, Cron):
        return when.expression if when.tz == "UTC" else f"{when.expression} ({when.tz})"
    if isinstance(when, Every):
        return f"every {format_duration(when.span)}" + (f" + {format_duration(when.phase)}" if when.phase else "")
    return when


def schedule_json(info: ScheduleInfo) -> dict[str, Any]:
    """Return a schedule as it is printed with --json."""
    when = info.when
    if isinstance(when, Cron):
        times: Any = {"cron": when.expression, "tz": when.tz}
    else:
        times = {"every": when.span, "phase": when.phase} if isinstance(when, Every) else when
    return {**msgspec.structs.asdict(info), "when": times}


@schedule.command("show", examples="penstock schedule show reports nightly")
@queue_argument
@name_argument
@json_option
@target_options(serde=True, needs_app=True)
def show(target: Target, queue: str, name: str, as_json: bool) -> None:
    """Show one schedule: its times, its jobs, and the counts of its ticks."""

    async def work() -> ScheduleInfo:
        async with target.opened() as app:
            return found_or_raise(await app.queue(queue).schedules.get(name), queue, name)

    info = run(work())
    if as_json:
        echo_json(schedule_json(info))
    else:
        print_record(list(pairs_of(info)))


def found_or_raise(info: ScheduleInfo | None, queue: str, name: str) -> ScheduleInfo:
    """Return the schedule; raises `ScheduleNotFound` if there is none."""
    if info is None:
        raise ScheduleNotFound(f"there is no schedule {name!r} in queue {queue!r}")
    return info


def pairs_of(info: ScheduleInfo) -> Sequence[tuple[str, Cell]]:
    """Return the lines of `show`."""
    now = datetime.now(UTC)
    changed = f", changed at run time: {', '.join(info.changed)}" if info.changed else ""
    pairs: list[tuple[str, Cell]] = [
        ("queue", info.queue),
        ("name", Styled(info.name, "bold")),
        ("when", format_when(info.when)),
        ("source", f"{info.source}{changed}"),
        ("payload", info.payload_function or format_value(info.payload)),
    ]
    if info.start or info.end:
        pairs.append(("range", f"{format_time(info.start, now)} to {format_time(info.end, now)}"))
    if info.jitter:
        pairs.append(("jitter", format_duration(info.jitter)))
    most = f", {info.most} at most" if info.catch_up == "all" else ""
    pairs += [
        ("overlap", info.overlap),
        ("late ticks", f"{info.catch_up}{most}, after {format_duration(info.grace)}"),
        ("next", format_time(info.next_at, now)),
        ("last", format_time(info.last_at, now) + (f", {info.last_id}" if info.last_id else "")),
        ("ticks", ", ".join(f"{getattr(info, each):,} {each}" for each in ("fired", "skipped", "missed", "dropped"))),
    ]
    if info.paused_since:
        note = f": {info.note}" if info.note else ""
        pairs.append(("paused", Styled(f"since {format_time(info.paused_since, now)}{note}", "yellow")))
    if info.retired_since:
        since = format_time(info.retired_since, now)
        pairs.append(("retired", Styled(f"since {since}: no live worker declares it", "yellow")))
    return pairs


@schedule.command(
    "next",
    examples="""
        penstock schedule next reports nightly -n 3
        penstock schedule next --cron '30 2 * * *' --tz Europe/Paris   # needs no storage
    """,
)
@click.argument("queue", required=False, shell_complete=queue_names)
@click.argument("name", required=False)
@click.option("--count", "-n", type=IntegerType(1, 1000), default=10, show_default=True, help="How many ticks.")
@click.option("--cron", metavar="EXPR", help="The ticks of this expression, without a schedule.")
@click.option("--tz", metavar="ZONE", help="The time zone of --cron.  [default: UTC]")
@json_option
@target_options
def next_(
    target: Target, queue: str | None, name: str | None, count: int, cron: str | None, tz: str | None, as_json: bool
) -> None:
    """Print the next ticks of a schedule, or of a cron expression."""

    async def work(queue: str, name: str) -> tuple[list[datetime], str]:
        async with target.opened() as app:
            schedules = app.queue(queue).schedules
            info = found_or_raise(await schedules.get(name), queue, name)
            return await schedules.next(name, count), info.when.tz if isinstance(info.when, Cron) else "UTC"

    if cron is not None:
        if queue is not None:
            raise click.UsageError("give QUEUE and NAME or --cron, not both")
        when = Cron(cron, tz=tz or "UTC")
        times, zone = list(islice(ticks_of(when), count)), when.tz
    elif queue is None or name is None or tz is not None:
        raise click.UsageError("give QUEUE and NAME, or --cron with or without --tz")
    else:
        times, zone = run(work(queue, name))
    if as_json:
        echo_json(times)
        return
    for moment in times:
        echo(f"{moment:%Y-%m-%d %H:%M:%S}Z" + ("" if zone == "UTC" else f"  {in_zone(moment, zone)}"))
    if not times:
        echo("there is no further tick", err=True)


def ticks_of(when: Cron) -> Iterator[datetime]:
    """Yield the ticks of a cron from now on."""
    moment = when.after(datetime.now(UTC))
    while moment is not None:
        yield moment
        moment = when.after(moment)


def in_zone(moment: datetime, zone: str) -> str:
    """Return a time in a zone, with the zone's abbreviation."""
    return f"{moment.astimezone(zone_of(zone)):%Y-%m-%d %H:%M:%S %Z}"


# changes --------------------------------------------------------------------------------------------


@schedule.command("pause", examples="penstock schedule pause reports nightly --note 'database moves'")
@queue_argument
@name_argument
@click.option("--note", default="", help="Why, for others who look.")
@target_options(changes=True)
def pause(target: Target, queue: str, name: str, note: str) -> None:
    """Stop the ticks of a schedule until it is resumed. Jobs that it has put go on."""
    paused = run(with_schedules(target, queue, lambda schedules: schedules.pause(name, note)))
    echo(f"{queue}/{name}: {'paused' if paused else 'was paused already'}")


@schedule.command("resume", examples="penstock schedule resume reports nightly")
@queue_argument
@name_argument
@click.option("--catch-up", is_flag=True, help="Treat the ticks of the pause as late ones.")
@target_options(changes=True)
def resume(target: Target, queue: str, name: str, catch_up: bool) -> None:
    """Let a schedule tick again, from now on."""
    resumed = run(with_schedules(target, queue, lambda schedules: schedules.resume(name, catch_up)))
    echo(f"{queue}/{name}: {'resumed' if resumed else 'was not paused'}")


@schedule.command(
    "trigger",
    examples="""
        penstock schedule trigger reports nightly
        penstock schedule trigger reports nightly --payload '{"day": "2030-01-31"}' --overlap allow
    """,
)
@queue_argument
@name_argument
@click.option("--payload", metavar="JSON", help="Instead of the schedule's.")
@click.option("--text", is_flag=True, help="Take the payload as plain text, not JSON.")
@click.option("--overlap", type=click.Choice(OVERLAPS), help="Instead of the schedule's.")
@json_option
@target_options(serde=True, needs_app=True, changes=True)
def trigger(
    target: Target, queue: str, name: str, payload: str | None, text: bool, overlap: Any, as_json: bool
) -> None:
    """Put a job of a schedule now, whether it is paused or not. The exit code is 1 if its last job is unfinished."""
    value = UNSET if payload is None else parse_value(payload, as_text=text, raw=target.serde == "raw")
    answer = run(with_schedules(target, queue, lambda s: s.trigger(name, payload=value, overlap=overlap)))
    if as_json:
        echo_json(answer)
    elif answer:
        echo(f"{queue}/{answer.id}: {answer.status}")
    else:
        echo(f"{queue}/{answer.id}: is unfinished ({answer.state}), so no job was put (see --overlap)")
    if not answer:
        raise click.exceptions.Exit(1)


@schedule.command(
    "backfill", examples="penstock schedule backfill reports nightly --from 2030-01-01T00:00Z --to 2030-01-08T00:00Z"
)
@queue_argument
@name_argument
@click.option("--from", "start", metavar="TIME", required=True, help="After this time, local if it has no offset.")
@click.option("--to", "end", metavar="TIME", required=True, help="Up to this time, local if it has no offset.")
@target_options(serde=True, needs_app=True, changes=True)
def backfill(target: Target, queue: str, name: str, start: str, end: str) -> None:
    """Put the jobs of past ticks, in order; ticks that have a job are left out."""
    first, last = parse_time(start, "--from"), parse_time(end, "--to")
    number = run(with_schedules(target, queue, lambda schedules: schedules.backfill(name, first, last)))
    echo(f"{queue}/{name}: {count(number, 'job')} put")


@schedule.command("reset", examples="penstock schedule reset reports nightly")
@queue_argument
@name_argument
@target_options(changes=True)
def reset(target: Target, queue: str, name: str) -> None:
    """Forget the changes of run time: the schedule is as the code declares it. A pause stays."""
    run(with_schedules(target, queue, lambda schedules: schedules.reset(name)))
    echo(f"{queue}/{name}: reset")


@schedule.command(
    "rm",
    examples="""
        penstock schedule rm reports acme          # asks
        penstock schedule rm reports acme --yes    # for scripts
    """,
)
@queue_argument
@name_argument
@yes_option
@target_options(changes=True)
def rm(target: Target, queue: str, name: str, yes: bool) -> None:
    """Remove a schedule that was made at run time. Jobs that it has put stay."""

    async def work() -> bool:
        async with target.opened() as app:
            schedules = app.queue(queue).schedules
            found_or_raise(await schedules.get(name), queue, name)
            confirm(f"Remove the schedule {name} of {queue}?", yes)
            return await schedules.remove(name)

    echo(f"{queue}/{name}: {'removed' if run(work()) else 'was removed already'}")


async def with_schedules(target: Target, queue: str, act: Callable[[Schedules], Awaitable[T]]) -> T:
    """Open the storage and apply `act` to the schedules of a queue; returns its answer."""
    async with target.opened() as app:
        return await act(app.queue(queue).schedules)
