"""Text for one line of a log or a terminal: escaped, bounded, with plurals, and with the place of an error."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

__all__ = [
    "MAX_NAMES",
    "count",
    "escape_controls",
    "format_moment",
    "format_span",
    "indent",
    "is_library",
    "job_name",
    "join_names",
    "one_line",
    "place_of",
    "quote_name",
]

#: How many characters of an error's message, or of a name, a line has.
MAX_LENGTH = 300

#: How many jobs a line names.
MAX_NAMES = 5

#: A name with one of these could be taken for more than a name; an empty one could be overlooked.
_QUOTED = re.compile(r"[\s'\"`\\]|^$")

_FRAME = re.compile(r'^[\s|+-]*File "(.+?)", line (\d+)', re.MULTILINE)
_STANDARD = tuple(
    {os.path.realpath(path) + os.sep for name in ("stdlib", "platstdlib") if (path := sysconfig.get_path(name))}
)
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def escape_controls(text: str, *, lines: bool = False, json: bool = False) -> str:
    """Return the text with each character escaped that is not printable: names of jobs must not drive the terminal.

    That includes marks which change the direction of text, and all separators but the space. With `lines`, newlines
    stay. With `json`, the text is a JSON document: the escapes are those of its strings, so that it parses to the same
    value, and newlines, which can stand only between values, stay.
    """
    if text.isprintable():
        return text
    keep = "\n" if lines or json else ""
    escape = _escape_in_json if json else _escape
    return "".join(c if c.isprintable() or c in keep else escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()


def _escape_in_json(character: str) -> str:
    """Return the escape of a character in a JSON string; one beyond U+FFFF is a pair of surrogates."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4))


def one_line(text: str, most: int = MAX_LENGTH) -> str:
    """Return the beginning of a text as one line, with control characters escaped."""
    return escape_controls(text if len(text) <= most else f"{text[:most]}…")


def count(number: int, one: str, many: str | None = None) -> str:
    """Return a number with its noun: "1 job", "1,204 jobs"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def quote_name(name: str) -> str:
    """Return a name from the storage as a log line has it: as it is, or quoted unless it is one printable word."""
    short = name if len(name) <= MAX_LENGTH else f"{name[:MAX_LENGTH]}…"
    return short if short.isprintable() and not _QUOTED.search(short) else repr(short)


def job_name(queue: str, id: str) -> str:
    """Return how a log line names a job: its queue and its id."""
    return f"{quote_name(queue)}/{quote_name(id)}"


def join_names(jobs: Sequence[tuple[str, str]]) -> str:
    """Return the names of the first few jobs, given as queue and id."""
    names = [job_name(queue, id) for queue, id in jobs[:MAX_NAMES]]
    return ", ".join([*names, "…"] if len(jobs) > MAX_NAMES else names)


def format_span(ms: float) -> str:
    """Return a span of time in one unit: "25.8 ms", "4 s", "5 min", "12 h"."""
    for unit, length, enough in (("ms", 1, 1000), ("s", 1000, 120_000), ("min", 60_000, 7_200_000)):
        if ms < enough:
            return f"{ms / length:.3g} {unit}"
    return f"{ms / 3_600_000:.3g} h"


def format_moment(ms: float) -> str:
    """Return a time, given in milliseconds since 1970, in UTC."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S}Z"


def place_of(traceback: str) -> str:
    """Return the file and line in which an error was raised, by its traceback as text; "" if there is none.

    The innermost frame of the project counts: the place in a library or in Penstock comes second.
    """
    frames: list[tuple[str, str]] = _FRAME.findall(traceback)
    own = [frame for frame in frames if not is_library(frame[0])]
    outside = [frame for frame in frames if not frame[0].startswith(("<", _PACKAGE))]
    for path, line in reversed(own or outside):
        here = os.getcwd() + os.sep
        return f"{path.removeprefix(here) if path.startswith(here) else os.path.basename(path)}:{line}"
    return ""


def is_library(path: str) -> bool:
    """Return whether a source file is no part of the project: of Python, of an installed package, or of Penstock."""
    if path.startswith(("<", _PACKAGE)) or not {"site-packages", "dist-packages"}.isdisjoint(path.split(os.sep)):
        return True
    return os.path.realpath(path).startswith(_STANDARD)


def indent(lines: Iterable[str]) -> str:
    """Return lines of detail for a log line: indented, so that none of them looks like a line of the log."""
    return "".join(f"\n  {escape_controls(line)}" for line in lines)
