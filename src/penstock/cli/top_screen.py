"""Drawing of `penstock top`: one frame, as a screen of all queues or of one, or as plain lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from penstock import FailureGroup, LimitInfo, State, WorkerInfo
from penstock.cli.controls import SORTS, Controls
from penstock.cli.failures import SHOWN
from penstock.cli.fit import cut, fit_table
from penstock.cli.limit import describe_limit, opening_cell, running_cell
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
from penstock.ops.overview import FailedJob, Overview, QueueDetail, QueueView, Rate

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Frame", "order_queues", "plain_lines", "render"]

#: Lines of the screen that are not rows: title, three headings with a rule, counts of rows left out, blanks, keys.
FIXED_LINES = 15

#: The rows of closed limits that are shown at most, and the other lines of their table.
MAX_CLOSED, CLOSED_LINES = 5, 4

#: The lines about a chosen queue above its tables, and those of a table that are not rows.
DETAIL_LINES, SECTION_LINES = 7, 4

#: Characters of an error that are shown at most; the screen cuts it to its width.
MAX_ERROR = 200

SPARK_BLOCKS = "▁▂▃▄▅▆▇█"


class Frame(NamedTuple):
    """One state of the screen: storage, overview, rates now and before, error of an outage, and the chosen queue."""

    where: str
    overview: Overview
    rates: dict[str, Rate]
    history: dict[str, list[float]]
    outage: str = ""
    detail: QueueDetail | None = None


QUEUE_COLUMNS = [
    Column("queue", elastic=True, cut="middle", least=12), Column("queued", True), Column("running", True),
    Column("later", True, optional=True), Column("failed", True), Column("in/s", True, optional=True),
    Column("out/s", True), Column("waits", True), Column("workers", True, optional=True),
    Column("recent", elastic=True, cut="start", least=8, optional=True),
]  # fmt: skip
#: A column of queues with schedules, before the last.
TICK_COLUMN = Column("next tick", True, optional=True)
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
GROUP_COLUMNS = [
    Column("failed alike", elastic=True, least=30), Column("open", True), Column("of", True), Column("last", True),
    Column("key", optional=True),
]  # fmt: skip
LIMIT_COLUMNS = [
    Column("closed limit", elastic=True, cut="middle", least=20), Column("limit", elastic=True, least=10),
    Column("running", True), Column("waiting", True), Column("opens", True),
]  # fmt: skip


def render(frame: Frame, width: int, height: int, controls: Controls) -> RenderableType:
    """Return a frame for a terminal of `width` columns and `height` lines; no line of it is wrapped."""
    from rich.console import Group
    from rich.text import Text

    drawn = draw_queues if controls.chosen is None else draw_queue
    keys = Text(cut(plain_text(controls.help_line()), width), style=DIM)
    return Group(title(frame, width), Text(), *drawn(frame, width, height, controls), keys)


def draw_queues(frame: Frame, width: int, height: int, controls: Controls) -> list[RenderableType]:
    """Return the tables of all queues that match the filter, of their workers and failures."""
    overview = filter_overview(frame.overview, controls)
    closed = [limit_row(info, overview) for info in overview.closed]
    taken = min(len(closed), MAX_CLOSED) + CLOSED_LINES if closed else 0
    counts = (len(overview.queues), len(overview.workers), len(overview.failures))
    room = divide_rows(counts, max(height - FIXED_LINES - taken, 3))
    columns, queues = queue_table(overview, frame, controls.sort, controls.cursor)
    names = order_queues(frame, controls)
    first = 0 if controls.cursor not in names else window_start(names.index(controls.cursor), room[0], len(names))
    matching = " that match" if controls.filter else ""
    parts = section(columns, queues, room[0], width, f"no queues{matching or ' yet'}", first)
    if closed:
        parts += section(LIMIT_COLUMNS, closed, MAX_CLOSED, width, "")
    workers = [worker_row(worker, overview) for worker in overview.workers]
    failures = [failed_row(failed, overview) for failed in overview.failures]
    parts += section(WORKER_COLUMNS, workers, room[1], width, f"no workers{' of these queues' if matching else ''}")
    parts += section(FAILURE_COLUMNS, failures, room[2], width, "nothing has failed")
    return parts


def draw_queue(frame: Frame, width: int, height: int, controls: Controls) -> list[RenderableType]:
    """Return the chosen queue: its row, states and latencies, closed limits, error groups, workers and failures."""
    name, detail = controls.chosen, frame.detail
    queues = [queue for queue in frame.overview.queues if queue.name == name]
    overview = replace(
        frame.overview,
        queues=queues,
        workers=[worker for worker in frame.overview.workers if name in worker.queues],
        failures=detail.failures if detail is not None else [],
        limits=[info for info in frame.overview.limits if info.scope != "family" and info.name == name],
    )
    closed = [limit_row(info, overview) for info in overview.closed]
    groups = [group_row(group, overview) for group in (detail.groups if detail is not None else [])]
    workers = [worker_row(worker, overview) for worker in overview.workers]
    failures = [failed_row(failed, overview) for failed in overview.failures]
    taken = min(len(closed), MAX_CLOSED) + CLOSED_LINES if closed else 0
    room = height - FIXED_LINES - taken - DETAIL_LINES
    shown = room >= 3  # a low screen has no list of single failures: the error groups are their summary
    rooms = divide_rows(
        (len(groups), len(workers), len(failures) if shown else 0), max(room if shown else room + SECTION_LINES, 3)
    )
    columns, rows = queue_table(overview, frame, controls.sort)
    parts = section(columns, rows, 1, width, f"queue {name} has no jobs, no pause and no worker any more")
    if queues:
        parts += detail_lines(queues[0], detail, width)
    if closed:
        parts += section(LIMIT_COLUMNS, closed, MAX_CLOSED, width, "")
    parts += section(GROUP_COLUMNS, groups, rooms[0], width, "no jobs are failed alike")
    parts += section(WORKER_COLUMNS, workers, rooms[1], width, "no workers of this queue")
    return parts + section(FAILURE_COLUMNS, failures, rooms[2], width, "nothing has failed") if shown else parts


def detail_lines(queue: QueueView, detail: QueueDetail | None, width: int) -> list[RenderableType]:
    """Return the states in which a queue has jobs and its latencies as lines, and a blank one."""
    from rich.text import Text

    states = Text("  ".join(f"{state} {number:,}" for state, number in queue.counts.items() if number) or "no jobs")
    recent = detail.recent if detail is not None else None
    times = "no samples of wait and run times yet: workers take one every minute"
    if recent is not None:
        parts = (("wait p50", recent.wait.p50), ("p95", recent.wait.p95), ("run p50", recent.run.p50),
                 ("p95", recent.run.p95))  # fmt: skip
        shown = "  ".join(f"{name} {'-' if value is None else format_duration(value)}" for name, value in parts)
        times = f"{shown}  ({recent.since:%H:%M} to {recent.until:%H:%M} UTC)"
    states.truncate(width, overflow="ellipsis")
    return [states, Text(cut(times, width), style=DIM), Text()]


def group_row(group: FailureGroup, overview: Overview) -> list[Cell]:
    message = " ".join(group.message.split())
    return [
        Styled(f"{group.type}: {message}"[:MAX_ERROR], "red"),
        f"{group.open:,}",
        f"{group.count:,}",
        Styled(f"{format_duration((overview.at - group.last_at).total_seconds())} ago", DIM),
        Styled(group.key[:SHOWN], DIM),
    ]


def filter_overview(overview: Overview, controls: Controls) -> Overview:
    """Return the queues that match the filter, with their workers and failures."""
    if not controls.filter:
        return overview
    return replace(
        overview,
        queues=[queue for queue in overview.queues if controls.matches(queue.name)],
        workers=[worker for worker in overview.workers if any(map(controls.matches, worker.queues))],
        failures=[failed for failed in overview.failures if controls.matches(failed.queue)],
        limits=[info for info in overview.limits if controls.matches(info.name)],
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


def section(
    columns: list[Column], rows: list[list[Cell]], room: int, width: int, empty: str, first: int = 0
) -> list[RenderableType]:
    """Return a table of `room` rows from the row `first` on, the number of the others, and a blank line."""
    from rich.text import Text

    if not rows:
        return [Text(cut(plain_text(empty), width), style=DIM), Text()]
    made: list[RenderableType] = [rich_table(*fit_table(columns, rows[first : first + room], width))]
    if len(rows) > room:
        made.append(Text(f"and {len(rows) - room} more", style=DIM))
    return [*made, Text()]


def window_start(place: int, room: int, total: int) -> int:
    """Return the first of `room` rows, of `total`, that are shown, so that the row at `place` is in their middle."""
    return max(min(place - room // 2, total - room), 0)


def divide_rows(wants: tuple[int, int, int], room: int) -> tuple[int, int, int]:
    """Return the rows of three tables to show, of the wanted ones: all, or a fair share of `room`."""
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


def order_queues(frame: Frame, controls: Controls) -> list[str]:
    """Return the names of the queues that match the filter, in the order of the screen."""
    queues = [queue for queue in frame.overview.queues if controls.matches(queue.name)]
    return [queue.name for queue in sort_queues(queues, frame, controls.sort)]


def queue_table(
    overview: Overview, frame: Frame, sort: str, cursor: str | None = None
) -> tuple[list[Column], list[list[Cell]]]:
    """Return the columns and rows of the queues; the next ticks of schedules are shown if there are any."""
    queues = sort_queues(overview.queues, frame, sort)
    rows = [queue_row(queue, frame, queue.name == cursor) for queue in queues]
    if all(queue.next_tick is None for queue in queues):
        return QUEUE_COLUMNS, rows
    for queue, row in zip(queues, rows, strict=True):
        row.insert(-1, tick_cell(queue, overview))
    return [*QUEUE_COLUMNS[:-1], TICK_COLUMN, QUEUE_COLUMNS[-1]], rows


def tick_cell(queue: QueueView, overview: Overview) -> Cell:
    if queue.next_tick is None:
        return Styled("-", DIM)
    seconds = (queue.next_tick - overview.at).total_seconds()
    return f"in {format_duration(seconds)}" if seconds > 0 else Styled("due", "yellow")


def queue_row(queue: QueueView, frame: Frame, at_cursor: bool = False) -> list[Cell]:
    states = (State.SCHEDULED, State.RETRYING, State.SUSPENDED, State.BLOCKED)
    later = sum(queue.counts[state] for state in states)
    rate = frame.rates.get(queue.name)
    unserved = not queue.workers and bool(queue.counts[State.QUEUED])
    waits: Cell = Styled("-", DIM)
    if queue.paused_since:
        waits = Styled("paused", "yellow")
    elif queue.oldest:
        waits = format_duration((frame.overview.at - queue.oldest).total_seconds())
    return [
        Styled(queue.name, "bold reverse" if at_cursor else "bold"),
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


def limit_row(info: LimitInfo, overview: Overview) -> list[Cell]:
    what = {"groups": ", every group", "group": f", group {info.group}"}.get(info.scope, "")
    return [
        Styled(f"{'family ' if info.scope == 'family' else ''}{info.name}{what}", "bold"),
        Styled("paused", "yellow") if info.limit is None else describe_limit(info.limit),
        running_cell(info),
        Styled("-", DIM) if info.scope == "groups" else f"{info.waiting:,}",
        opening_cell(info, overview.at),
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
    columns, queues = queue_table(overview, frame, SORTS[0])
    lines += align_columns(columns[:-1], [row[:-1] for row in queues]) if queues else ["no queues"]
    lines.append("")
    if overview.closed:
        lines += [*align_columns(LIMIT_COLUMNS, [limit_row(info, overview) for info in overview.closed]), ""]
    shown = [WORKER_COLUMNS[0], *WORKER_COLUMNS[2:]]
    rows = [[row[0], *row[2:]] for row in (worker_row(w, overview) for w in overview.workers)]
    lines += align_columns(shown, rows) if rows else ["no workers"]
    if overview.failures:
        lines += ["", *align_columns(FAILURE_COLUMNS, [failed_row(f, overview) for f in overview.failures])]
    return lines
