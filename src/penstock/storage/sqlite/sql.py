"""The statements of the SQL files by name, and the schema, read once when the package is imported."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

__all__ = ["FAST_PUT", "JOB_COLUMNS", "SCHEMA", "SQL", "with_list", "with_numbered", "with_rows"]

#: The columns of a whole record, in the order of `rows.JobRow`.
JOB_COLUMNS = (
    "n", "queue", "id", "twin", "place", "rank", "time", "seq", "due", "created", "grp", "retried", "solo",
    "format", "attempts", "retries", "stalls", "timeouts", "start_by", "settled", "flags", "token", "worker", "until",
    "begun", "cancel", "cancel_ttl", "expires", "number", "finished", "progress", "error", "result", "headers",
    "limits", "payload",
)  # fmt: skip


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
        found[name.strip()] = "\n".join(lines).replace("{job}", ", ".join(JOB_COLUMNS))
    return found


SQL = parse(
    "\n".join(map(_read, ("statements.sql", "waiters.sql", "unknown_formats.sql", "why.sql", "inspection.sql")))
)
SCHEMA = _read("schema.sql")
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
    """Return a statement whose `{rows}` takes `count` rows of `width` values."""
    row = "(" + ",".join("?" * width) + ")"
    return SQL[name].replace("{rows}", ",".join([row] * count))
