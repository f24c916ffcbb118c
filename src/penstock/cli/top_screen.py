"""Drawing of `penstock top`: one frame, as a screen or as plain lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from penstock import State, WorkerInfo
from penstock.cli.controls import SORTS, Controls
from penstock.cli.fit import cut, fit_table
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
    plain_text,
    rich_table,
)
from penstock.cli.workers import id_cell, load_cell, load_of
from penstock.ops.overview import FailedJob, Overview, QueueView, Rate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Frame", "plain_lines", "render"]

#: Lines of the screen that are not rows: title, three headings with a rule, counts of rows left out, blanks, keys.
FIXED_LINES = 15

#: Characters of an error that are shown at most; the screen cuts it to its width.
MAX_ERROR = 200

SPARK_BLOCKS = "▁▂▃▄▅▆▇█"


class Frame(NamedTuple):
    """One state of the screen: storage, overview, rates now and before, and the error of an outage."""

    where: str
    overview: Overview
    rates: dict[str, Rate]
    history: dict[str, list[float]]
    outage: str = ""


QUEUE_COLUMNS = [
    Column("queue", elastic=True, cut="middle", least=12), Column("queued", True), Column("running", True),
    Column("later", True, optional=True), Column("failed", True), Column("in/s", True, optional=True),
    Column("out/s", True), Column("waits", True), Column("workers", True, optional=True),
    Column("recent", elastic=True, cut="start", least=8, optional=True),
]  # fmt: skip
WORKER_COLUMNS = [
    Column("worker", elastic=True, cut="middle", least=12), Column("load", optional=True), Column("units", True),
    Column("runs", True), Column("memory", True, optional=True), Column("seen", True),
    Column("queues", elastic=True, least=12),
]  # fmt: skip
FAILURE_COLUMNS = [
    Column("failed", True),
    Column("queue", elastic=True, cut="middle", least=10),
    Column("job", elastic=True, cut="middle", least=10),
    Column("runs", True, optional=True),
    Column("error", elastic=True, least=30),
]


def render(frame: Frame, width: int, height: int, controls: Controls) -> RenderableType:
    """Return a frame for a terminal of `width` columns and `height` lines; no line of it is wrapped."""
    from rich.console import Group
    from rich.text import Text

    overview = filter_overview(frame.overview, controls)
    room = divide_rows(overview, max(height - FIXED_LINES, 3))
    queues = [queue_row(queue, frame) for queue in sort_queues(overview.queues, frame, controls.sort)]
    workers = [worker_row(worker, overview) for worker in overview.workers]
    failures = [failed_row(failed, overview) for failed in overview.failures]
    matching = " that match" if controls.filter else ""
    parts: list[RenderableType] = [title(frame, width), Text()]
    parts += section(QUEUE_COLUMNS, queues, room[0], width, f"no queues{matching or ' yet'}")
    parts += section(WORKER_COLUMNS, workers, room[1], width, f"no workers{' of these queues' if matching else ''}")
    parts += section(FAILURE_COLUMNS, failures, room[2], width, "nothing has failed")
    parts.append(Text(cut(plain_text(controls.help_line()), width), style=DIM))
    return Group(*parts)


def filter_overview(overview: Overview, controls: Controls) -> Overview:
    """Return the queues that match the filter, with their workers and failures."""
    if not controls.filter:
        return overview
    return Overview(
        at=overview.at,
        queues=[queue for queue in overview.queues if controls.matches(queue.name)],
        workers=[worker for worker in overview.workers if any(map(controls.matches, worker.queues))],
        failures=[failed for failed in overview.failures if controls.matches(failed.queue)],
    )


def title(frame: Frame, width: int) -> RenderableType:
    """Return the first line: storage, time and sums, or the error of an outage."""
    from rich.text import Text

    name = "penstock top"
    if frame.outage:
        return Text(cut(plain_text(f"{name}  trying again: {frame.outage}"), width), style="bold red")
    arriving = sum(rate.arriving for rate in frame.rates.values())
    ending = sum(rate.ending for rate in frame.rates.values())
    time = f"{frame.overview.at:%H:%M:%S} UTC"
    jobs = count(sum(q.open for q in frame.overview.queues), "open job")
    speed = f"{arriving:,.0f} in/s  {ending:,.0f} out/s"
    where = cut(plain_text(frame.where), max(width - len(f"{name}    {time}  {jobs}  {speed}"), 0), "middle")
    line = Text.assemble((name, "bold"), f"  {where}  {time}  ", (f"{jobs}  ", "cyan"), (speed, "green"))
    line.truncate(width, overflow="ellipsis")
    return line


def section(columns: list[Column], rows: list[list[Cell]], room: int, width: int, empty: str) -> list[RenderableType]:
    """Return a table of the first `room` rows, the number of the others, and a blank line."""
    from rich.text import Text

    if not rows:
        return [Text(empty, style=DIM), Text()]
    made: list[RenderableType] = [rich_table(*fit_table(columns, rows[:room], width))]
    if len(rows) > room:
        made.append(Text(f"and {len(rows) - room} more", style=DIM))
    return [*made, Text()]


def divide_rows(overview: Overview, room: int) -> tuple[int, int, int]:
    """Return the rows of queues, workers and failures to show: all, or a fair share of `room`."""
    wants = (len(overview.queues), len(overview.workers), len(overview.failures))
    if sum(wants) <= room:
        return wants
    given = [0, 0, 0]
    for place, i in enumerate(sorted(range(3), key=lambda i: wants[i])):
        given[i] = min(wants[i], max((room - sum(given)) // (3 - place), 1))
    return given[0], given[1], given[2]


def sort_queues(queues: list[QueueView], frame: Frame, sort: str) -> list[QueueView]:
    """Return the queues in the order of the screen: by name, or those with the highest number first."""
    numbers: dict[str, Callable[[QueueView], float]] = {
        "name": lambda queue: 0,
        "open jobs": lambda queue: queue.open,
        "failed": lambda queue: queue.counts[State.FAILED],
        "out/s": lambda queue: frame.rates[queue.name].ending if queue.name in frame.rates else 0,
        "waits": lambda queue: 0 if queue.oldest is None else (frame.overview.at - queue.oldest).total_seconds(),
    }
    return sorted(queues, key=lambda queue: (-numbers[sort](queue), queue.name))


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
        Styled(f"{failed.error.type}: {message}"[:MAX_ERROR], "red"),
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
    queues = [queue_row(queue, frame)[:-1] for queue in sort_queues(overview.queues, frame, SORTS[0])]
    lines += align_columns(QUEUE_COLUMNS[:-1], queues) if queues else ["no queues"]
    lines.append("")
    shown = [WORKER_COLUMNS[0], *WORKER_COLUMNS[2:]]
    rows = [[row[0], *row[2:]] for row in (worker_row(w, overview) for w in overview.workers)]
    lines += align_columns(shown, rows) if rows else ["no workers"]
    if overview.failures:
        lines += ["", *align_columns(FAILURE_COLUMNS, [failed_row(f, overview) for f in overview.failures])]
    return lines
