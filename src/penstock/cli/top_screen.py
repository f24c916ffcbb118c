"""Drawing of `penstock top`: one frame, as a screen or as plain lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock import State, WorkerInfo
from penstock.cli.output import (
    DIM,
    STYLES,
    Cell,
    Column,
    Styled,
    align_columns,
    bar,
    count,
    format_bytes,
    format_duration,
    rich_table,
)
from penstock.cli.workers import id_cell, load_cell, load_of
from penstock.ops.overview import FailedJob, Overview, QueueView, Rate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Frame", "plain_lines", "render"]

#: Lines of the screen that are not rows: title, headings, rules and blank lines.
FIXED_LINES = 14

SPARK_BLOCKS = "▁▂▃▄▅▆▇█"


class Frame(NamedTuple):
    """One state of the screen: storage, overview, rates now and before, and the error of an outage."""

    where: str
    overview: Overview
    rates: dict[str, Rate]
    history: dict[str, list[float]]
    outage: str = ""


QUEUE_COLUMNS = [
    Column("queue", elastic=True), Column("queued", True), Column("running", True), Column("later", True),
    Column("failed", True), Column("in/s", True), Column("out/s", True), Column("waits", True),
    Column("workers", True), Column("last seconds"),
]  # fmt: skip
WORKER_COLUMNS = [
    Column("worker", elastic=True), Column("load"), Column("units", True), Column("runs", True),
    Column("memory", True), Column("seen", True), Column("queues", elastic=True),
]  # fmt: skip
FAILURE_COLUMNS = [
    Column("failed", True),
    Column("queue"),
    Column("job"),
    Column("runs", True),
    Column("error", elastic=True),
]


def render(frame: Frame, height: int = 50) -> RenderableType:
    """Return a frame for a terminal of `height` lines."""
    from rich.console import Group
    from rich.text import Text

    queues, workers, failures = divide_rows(frame, max(height - FIXED_LINES, 6))
    parts: list[RenderableType] = [title(frame), Text()]
    overview = frame.overview
    parts += section(
        QUEUE_COLUMNS, [queue_row(queue, frame) for queue in sort_by_open_jobs(frame)], queues, "no queues yet"
    )
    parts += section(
        WORKER_COLUMNS, [worker_row(w, overview) for w in overview.workers], workers, "no workers are there"
    )
    parts += section(
        FAILURE_COLUMNS, [failed_row(f, overview) for f in overview.failures], failures, "nothing has failed"
    )
    parts.append(Text("Ctrl-C to quit", style=DIM))
    return Group(*parts)


def title(frame: Frame) -> RenderableType:
    """Return the first line: storage, time and sums, or the error of an outage."""
    from rich.text import Text

    if frame.outage:
        return Text(f"penstock top  {frame.outage}; trying again", style="bold red")
    arriving = sum(rate.arriving for rate in frame.rates.values())
    ending = sum(rate.ending for rate in frame.rates.values())
    line = Text.assemble(("penstock top", "bold"), f"  {frame.where}  {frame.overview.at:%H:%M:%S} UTC  ")
    line.append(f"{count(sum(q.open for q in frame.overview.queues), 'open job')}  ", style="cyan")
    return line.append(f"{arriving:,.0f} in/s  {ending:,.0f} out/s", style="green")


def section(columns: list[Column], rows: list[list[Cell]], room: int, empty: str) -> list[RenderableType]:
    """Return a table of the first `room` rows, the number of the others, and a blank line."""
    from rich.text import Text

    if not rows:
        return [Text(empty, style=DIM), Text()]
    made: list[RenderableType] = [rich_table(columns, rows[:room])]
    if len(rows) > room:
        made.append(Text(f"and {len(rows) - room} more", style=DIM))
    return [*made, Text()]


def divide_rows(frame: Frame, room: int) -> tuple[int, int, int]:
    """Return the rows of queues, workers and failures to show: all, or a fair share of `room`."""
    wants = (len(frame.overview.queues), len(frame.overview.workers), len(frame.overview.failures))
    if sum(wants) <= room:
        return wants
    left, given = room, [0, 0, 0]
    for i in sorted(range(3), key=lambda i: wants[i]):
        waiting = sum(1 for j in range(3) if given[j] == 0 and wants[j] >= wants[i]) or 1
        given[i] = min(wants[i], max(left // waiting, 1))
        left -= given[i]
    return given[0], given[1], given[2]


def sort_by_open_jobs(frame: Frame) -> list[QueueView]:
    """Return the queues, those with the most open jobs first."""
    return sorted(frame.overview.queues, key=lambda queue: (-queue.open, queue.name))


def queue_row(queue: QueueView, frame: Frame) -> list[Cell]:
    later = queue.counts[State.SCHEDULED] + queue.counts[State.RETRYING] + queue.counts[State.BLOCKED]
    rate = frame.rates.get(queue.name)
    unserved = not queue.workers and bool(queue.counts[State.QUEUED])
    waits: Cell = Styled("-", DIM)
    if queue.paused_since:
        waits = Styled("paused", "yellow")
    elif queue.oldest:
        waits = format_duration((frame.overview.at - queue.oldest).total_seconds())
    return [
        Styled(queue.name, "bold"),
        count_cell(queue.counts[State.QUEUED], STYLES[State.QUEUED]),
        count_cell(queue.counts[State.RUNNING], STYLES[State.RUNNING]),
        count_cell(later, STYLES[State.SCHEDULED]),
        count_cell(queue.counts[State.FAILED], STYLES[State.FAILED]),
        Styled("-", DIM) if rate is None else rate_cell(rate.arriving),
        Styled("-", DIM) if rate is None else rate_cell(rate.ending),
        waits,
        Styled(str(len(queue.workers)), "bold red" if unserved else ""),
        Styled(sparkline(frame.history.get(queue.name, [])), "green"),
    ]


def worker_row(worker: WorkerInfo, overview: Overview) -> list[Cell]:
    load = load_cell(worker, bars=False)
    return [
        id_cell(worker),
        Styled(bar(load_of(worker), 1), load.style),
        load.text,
        str(worker.running),
        format_bytes(worker.memory) if worker.memory else Styled("-", DIM),
        Styled(f"{format_duration((overview.at - worker.seen_at).total_seconds())} ago", DIM),
        Styled(", ".join(worker.queues), DIM),
    ]


def failed_row(failed: FailedJob, overview: Overview) -> list[Cell]:
    ago = "-" if failed.at is None else f"{format_duration((overview.at - failed.at).total_seconds())} ago"
    message = " ".join(failed.error.message.split())
    return [
        Styled(ago, DIM),
        failed.queue,
        failed.id,
        str(failed.attempts),
        Styled(f"{failed.error.type}: {message}"[:120], "red"),
    ]


def count_cell(value: int, style: str) -> Cell:
    return Styled(f"{value:,}", style if value else DIM)


def rate_cell(value: float) -> Cell:
    text = f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.1f}"
    return Styled(text, "" if value else DIM)


def sparkline(values: list[float]) -> str:
    """Return rates as a line of block characters, scaled to the highest."""
    most = max(values, default=0.0)
    if not most:
        return ""
    return "".join(
        SPARK_BLOCKS[min(int(value / most * (len(SPARK_BLOCKS) - 1) + 0.5), 7)] if value else " " for value in values
    )


def plain_lines(frame: Frame) -> list[str]:
    """Return a frame as lines of plain text."""
    overview = frame.overview
    lines = [f"{frame.where}  {overview.at:%Y-%m-%d %H:%M:%S}Z", ""]
    columns = QUEUE_COLUMNS[:-1]
    lines += (
        align_columns(columns, [queue_row(queue, frame)[:-1] for queue in sort_by_open_jobs(frame)])
        if overview.queues
        else ["no queues"]
    )
    lines.append("")
    shown = [WORKER_COLUMNS[0], *WORKER_COLUMNS[2:]]
    rows = [[row[0], *row[2:]] for row in (worker_row(w, overview) for w in overview.workers)]
    lines += align_columns(shown, rows) if rows else ["no workers"]
    if overview.failures:
        lines += ["", *align_columns(FAILURE_COLUMNS, [failed_row(f, overview) for f in overview.failures])]
    return lines
