"""`penstock history`: what a queue, or all queues, did in the last hours and days."""

from __future__ import annotations

from typing import cast

import click

from penstock import HistoryPoint, QueueInfo
from penstock.cli.base import Command, run
from penstock.cli.completion import queue_names
from penstock.cli.hints import hint_missing_queue
from penstock.cli.output import DIM, Cell, Column, Styled, echo, echo_json, format_duration, json_option, print_table
from penstock.cli.target import Target, target_options
from penstock.client.history import SPANS, HistorySpan
from penstock.model.job import State
from penstock.ops.history import read_history, read_rates, read_stats

__all__ = ["history"]

COLUMNS = [
    Column("until"), Column("in/min", True), Column("out/min", True), Column("failed", True), Column("retried", True),
    Column("waiting", True), Column("oldest", True), Column("wait p95", True), Column("run p50", True),
    Column("run p95", True), Column(""),
]  # fmt: skip

WAITING = (State.QUEUED, State.SCHEDULED, State.RETRYING)


@click.command(
    cls=Command,
    examples="""
        penstock history mail
        penstock history mail --span 2d
        penstock history --json | jq '.[-1]'       # all queues together
    """,
)
@click.argument("queue", required=False, shell_complete=queue_names)
@click.option("--span", type=click.Choice(list(SPANS)), default="2h", help="How far to look back.", show_default=True)
@json_option
@target_options
def history(target: Target, queue: str | None, span: str, as_json: bool) -> None:
    """Show what a queue did: jobs in and out per minute, failures, and how long jobs waited and ran.

    Without QUEUE all queues together. Workers take a sample every minute: two hours by minutes, two days by ten
    minutes, two weeks by hours.
    """

    async def work() -> tuple[list[HistoryPoint], list[QueueInfo], bool]:
        async with target.opened() as app:
            points = await read_history(app, queue, cast(HistorySpan, span))
            missing = queue is not None and not points and await hint_missing_queue(app, queue)
            return points, [] if queue is None else await read_stats(app, [queue]), missing

    points, now, missing = run(work())
    if as_json:
        echo_json(points)
    if as_json or missing:
        return
    print_table(COLUMNS, [row(point) for point in points], "no samples yet: workers take one every minute")
    for info in now:
        echo(summary(info, points))


def row(point: HistoryPoint) -> list[Cell]:
    """Return the cells of one point."""
    minutes = point.minutes or 1.0
    finished = point.completed + point.failed + point.cancelled
    return [
        f"{point.until:%Y-%m-%d %H:%M}", f"{point.arrived / minutes:,.0f}", f"{finished / minutes:,.0f}",
        Styled(f"{point.failed:,}", "red" if point.failed else DIM), f"{point.retried:,}",
        f"{sum(point.counts.get(state, 0) for state in WAITING):,}", seconds(point.oldest), seconds(point.wait.p95),
        seconds(point.run.p50), seconds(point.run.p95), Styled("gap", "yellow") if point.gap else "",
    ]  # fmt: skip


def seconds(value: float | None) -> Cell:
    """Return a duration, or a dash for none."""
    return Styled("-", DIM) if value is None else format_duration(value)


def summary(info: QueueInfo, points: list[HistoryPoint]) -> str:
    """Return a line about a queue now."""
    rates = read_rates(points)
    shown = "" if rates.finished is None else f", {rates.finished:,.1f} out/min, {rates.arrived or 0:,.1f} in/min"
    totals = info.totals
    return (
        f"{info.name}: {totals.completed:,} completed, {totals.failed:,} failed, {totals.cancelled:,} cancelled since "
        f"it was created{shown}"
    )
