"""Output of commands: tables on a terminal, aligned text when piped, JSON with --json.

rich is imported only when something is drawn, so that workers and scripts start without it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import click
import msgspec

from penstock.model.job import State
from penstock.model.printing import count, escape_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

__all__ = [
    "STYLES",
    "Cell",
    "Column",
    "Lines",
    "Styled",
    "bar",
    "console",
    "count",
    "echo",
    "echo_json",
    "escape_controls",
    "format_bytes",
    "format_duration",
    "format_time",
    "is_terminal",
    "json_option",
    "plain_text",
    "print_record",
    "print_table",
    "rich_table",
    "rich_text",
    "with_named_error",
]

F = TypeVar("F", bound=Callable[..., Any])

#: The colour of each state, in every command.
STYLES: dict[str, str] = {
    State.SCHEDULED: "blue",
    State.QUEUED: "cyan",
    State.BLOCKED: "yellow",
    State.RUNNING: "bold green",
    State.RETRYING: "yellow",
    State.COMPLETED: "green",
    State.FAILED: "bold red",
    State.CANCELLED: "bright_black",
    State.SUSPENDED: "magenta",
}
DIM = "bright_black"

#: The width to which an elastic column may be narrowed.
MIN_ELASTIC_WIDTH = 20


class Styled(NamedTuple):
    """A text with a style for terminals."""

    text: str
    style: str = ""


class Lines(Styled):
    """A text of several lines for `print_record`: its newlines are printed as such. Only for tracebacks."""


#: A cell of a table: plain text, or text with a style.
Cell = str | Styled


class Column(NamedTuple):
    """A column of a table; `right` aligns numbers."""

    name: str
    right: bool = False
    #: Whether it is wrapped, or cut by `fit_table`, on a narrow terminal; piped output is never shortened.
    elastic: bool = False
    #: The part of a text that `fit_table` leaves out: its start, its middle or its end.
    cut: Literal["start", "middle", "end"] = "end"
    #: The width that `fit_table` keeps for an elastic column as long as it can.
    least: int = 0
    #: Whether `fit_table` may leave the column out.
    optional: bool = False


def json_option(function: F) -> F:
    """Add --json; the command gets it as `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def is_terminal(stream: Any = None) -> bool:
    """Return whether the output goes to a terminal that can draw."""
    stream = sys.stdout if stream is None else stream
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def console(*, err: bool = False) -> Console:
    """Return a rich console, for output to a terminal."""
    from rich.console import Console

    return Console(stderr=err, highlight=False)


def echo(text: str = "", *, err: bool = False) -> None:
    """Print a text as one line, with its control characters and newlines escaped."""
    click.echo(escape_controls(text), err=err)


def echo_json(value: Any, *, line: bool = False) -> None:
    """Print a value as JSON: indented on a terminal, on one line if piped or with `line`.

    Everything that is not printable is escaped, piped as well, and parses to the same value.
    """
    data = msgspec.json.encode(value, enc_hook=repr)
    if not line and is_terminal():
        data = msgspec.json.format(data, indent=2)
    click.echo(escape_controls(data.decode("utf-8", "replace"), json=True))


def with_named_error(record: msgspec.Struct) -> dict[str, Any]:
    """Return the fields of a job or an event for `echo_json`; those of its error, stored without names, have names."""
    fields = msgspec.structs.asdict(record)
    if (error := fields["error"]) is not None:
        fields["error"] = msgspec.structs.asdict(error)
    return fields


# tables and records ------------------------------------------------------------------------------


def print_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]], empty: str) -> None:
    """Print rows under headings, or the text `empty` if there are none."""
    if not rows:
        echo(empty, err=not is_terminal())
    elif is_terminal():
        console().print(rich_table(columns, rows))
    else:
        for line in align_columns(columns, rows):
            echo(line)


def rich_table(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> RichTable:
    """Return a table for a terminal."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    for i, column in enumerate(columns):
        longest = max([len(column.name), *(len(plain_text(row[i])) for row in rows)])
        made.add_column(
            column.name,
            justify="right" if column.right else "left",
            no_wrap=not column.elastic,
            overflow="fold" if column.elastic else "ellipsis",
            min_width=min(longest, MIN_ELASTIC_WIDTH) if column.elastic else None,
        )
    for row in rows:
        made.add_row(*map(rich_text, row))
    return made


def align_columns(columns: Sequence[Column], rows: Sequence[Sequence[Cell]]) -> list[str]:
    """Return a table as lines of plain text, with no cell shortened."""
    lines = [[column.name for column in columns], *([plain_text(cell) for cell in row] for row in rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
    return [
        "  ".join(
            f"{text:>{width}}" if column.right else f"{text:<{width}}"
            for text, width, column in zip(line, widths, columns, strict=True)
        ).rstrip()
        for line in lines
    ]


def print_record(pairs: Sequence[tuple[str, Cell]]) -> None:
    """Print pairs of name and value, one per line."""
    if is_terminal():
        from rich.table import Table

        made = Table.grid(padding=(0, 2))
        made.add_column(style="bold", no_wrap=True)
        made.add_column(overflow="fold")
        for name, value in pairs:
            made.add_row(name, rich_text(value))
        console().print(made)
        return
    width = max(len(name) for name, _ in pairs)
    for name, value in pairs:
        first, *rest = plain_text(value).splitlines() or [""]
        echo(f"{name:<{width}}  {first}".rstrip())
        for line in rest:
            echo(f"{'':{width}}  {line}".rstrip())


def rich_text(cell: Cell) -> Text:
    """Return a cell as rich text; markup in it is printed, not interpreted."""
    from rich.text import Text

    style = cell.style if isinstance(cell, Styled) else ""
    return Text(plain_text(cell), style=style)


def plain_text(cell: Cell) -> str:
    """Return the text of a cell with its control characters escaped."""
    text = cell.text if isinstance(cell, Styled) else cell
    return escape_controls(text, lines=isinstance(cell, Lines))


# formatting --------------------------------------------------------------------------------------


def format_duration(seconds: float) -> str:
    """Return a duration in its two largest units: "850ms", "12s", "3m20s", "2h05m", "4d3h"."""
    if seconds < 1:
        return f"{max(seconds, 0) * 1000:.0f}ms"
    whole = int(seconds)
    days, hours, minutes = whole // 86400, whole % 86400 // 3600, whole % 3600 // 60
    if days:
        return f"{days}d{hours}h"
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{whole % 60:02}s" if minutes else f"{whole}s"


def format_time(moment: datetime | None, now: datetime | None = None) -> str:
    """Return a time and its distance from now, as in `2026-03-01 12:00:00Z (3m20s ago)`."""
    if moment is None:
        return "-"
    away = ((now or datetime.now(UTC)) - moment).total_seconds()
    near = f"{format_duration(away)} ago" if away >= 0 else f"in {format_duration(-away)}"
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z ({near})"


def format_bytes(number: float) -> str:
    """Return a number of bytes in a fitting unit: "812 B", "1.4 MB"."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"


def bar(part: float, whole: float, width: int = 10) -> str:
    """Return a bar of block characters, filled by the share `part / whole`."""
    share = min(max(part / whole, 0.0), 1.0) if whole else 0.0
    full = round(share * width)
    return "█" * full + "░" * (width - full)
