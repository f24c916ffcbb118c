"""The statements of the SQL files by name, and the schema, read once when the package is imported."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["FAST_PUT", "JOB_COLUMNS", "SCHEMA", "SQL", "Blob", "with_list", "with_numbered", "with_rows"]

#: The columns of a whole record, in the order of `rows.JobRow`.
JOB_COLUMNS = (
    "n", "queue", "id", "twin", "place", "rank", "time", "seq", "due", "created", "grp", "retried", "solo",
    "format", "attempts", "retries", "stalls", "timeouts", "start_by", "cost", "window_ms", "earliest", "settled",
    "flags", "token", "worker", "until", "begun", "cancel", "cancel_ttl", "expires", "number", "finished", "error_key",
    "progress", "error", "result", "headers", "bounds", "payload",
)  # fmt: skip


#: The columns of a schedule, in the order of `schedule_row.ScheduleRow`.
SCHEDULE_COLUMNS = (
    "n", "name", "version", "cursor", "next", "last_id", "last_at", "fired", "skipped", "missed", "dropped", "expires",
    "spec",
)  # fmt: skip


#: The columns of the part of a job in flows, in the order of `flow_rows.GenerationRow`.
GENERATION_COLUMNS = (
    "job", "queue", "generation", "parent", "flags", "extended_at", "fresh", "needs", "total", "adopted", "closed",
    "opening", "waiting", "first", "count", "wait", "cancel_ttl", "ended", "n_open", "n_ended", "plan", "binds",
)  # fmt: skip


#: The type in which frequent statements bind bytes. `sqlite3` looks for an adapter of every value that is not an `int`,
#: `float`, `str` or `bytearray`: to bind `bytes` or None takes two or three times as long.
Blob = bytearray


def _read(name: str) -> str:
    return files(__package__ or __name__).joinpath(name).read_text("utf-8")


def parse(text: str) -> dict[str, str]:
    """Return the statements of a text by name; each is a block of `-- name: x`, comments and one statement."""
    found: dict[str, str] = {}
    for block in text.split("-- name: ")[1:]:
        name, _, body = block.partition("\n")
        lines = [line for line in body.splitlines() if line.strip() and not line.startswith("--")]
        if name.strip() in found:
            raise ValueError(f"two statements are named {name.strip()}")
        statement = "\n".join(lines).replace("{schedule}", ", ".join(SCHEDULE_COLUMNS))
        statement = statement.replace("{generation}", ", ".join(GENERATION_COLUMNS))
        found[name.strip()] = statement.replace("{job}", ", ".join(JOB_COLUMNS))
    return found


FILES = (
    "statements.sql",
    "windows.sql",
    "waiters.sql",
    "unknown_formats.sql",
    "why.sql",
    "inspection.sql",
    "damage.sql",
    "schedules.sql",
    "limits.sql",
    "histories.sql",
    "activity.sql",
    "purge.sql",
    "stats.sql",
    "find_newest.sql",
    "error_groups.sql",
    "flows.sql",
)
SQL = parse("\n".join(map(_read, FILES)))
SCHEMA = _read("schema.sql") + _read("flow_schema.sql")
FAST_PUT = _read("fast_put.sql")


@cache
def with_list(name: str, count: int) -> str:
    """Return a statement whose `{list}` takes `count` values."""
    return SQL[name].replace("{list}", ",".join("?" * count))


@cache
def with_numbered(name: str, width: int, count: int) -> str:
    """Return a statement whose `{numbered}` takes `count` rows of `width` values, each followed by its index."""
    row = "(" + "?," * width
    return SQL[name].replace("{numbered}", ",".join(f"{row}{at})" for at in range(count)))


@cache
def with_rows(name: str, width: int, count: int) -> str:
    """Return a statement whose `{rows}` takes `count` rows of `width` values; `{rows (…)}` has the row itself."""
    before, _, rest = SQL[name].partition("{rows")
    row, _, after = rest.partition("}")
    row = row.strip() or "(" + ",".join("?" * width) + ")"
    return before + ",".join([row] * count) + after
