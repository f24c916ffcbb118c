"""Logging of `penstock worker` and of other worker programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from penstock.model.context import current_job
from penstock.model.printing import escape_controls, indent

__all__ = ["JOB_FIELDS", "JobContextFilter", "JsonLines", "LogFormat", "configure", "job_fields"]

LogFormat = Literal["text", "json"]

#: The fields that a log record gets from the running job; the last two are those of OpenTelemetry's current span.
JOB_FIELDS = ("queue", "job_id", "attempt", "group", "worker", "trace_id", "span_id")

LONG_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"

#: For a terminal: the time of day, and nothing that is the same in every line.
SHORT_FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(message)s"

GREY, RED, GREEN, YELLOW, RESET = "\x1b[90m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"

#: The colour of a line: of a run by its outcome, of any other by its level.
OUTCOMES = {"completed": GREEN, "failed": RED}
LEVELS = {logging.DEBUG: GREY, logging.INFO: "", logging.WARNING: YELLOW, logging.ERROR: RED, logging.CRITICAL: RED}


class Escaping(logging.Formatter):
    """Formatter whose records cannot be forged by their contents.

    Control characters are escaped. Lines after the first, such as those of a traceback, are indented, so that none of
    them looks like a record.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the text of a record."""
        text = super().format(record)
        if text.isprintable():
            return text
        first, *rest = text.split("\n")
        if all(line.startswith("  ") for line in rest):
            return "\n".join(map(escape_controls, (first, *rest)))
        return escape_controls(first) + indent(rest)


class Coloured(Escaping):
    """Formatter of short lines for a terminal, coloured by outcome or level."""

    def __init__(self) -> None:
        super().__init__(SHORT_FORMAT, "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record in its colour."""
        outcome = getattr(record, "outcome", None)
        colour = LEVELS.get(record.levelno, "") if outcome is None else OUTCOMES.get(outcome, YELLOW)
        text = super().format(record)
        return f"{colour}{text}{RESET}" if colour else text


def job_fields() -> dict[str, Any]:
    """Return the fields of the running job and of the current span, without those that there are not."""
    fields: dict[str, Any] = {}
    job = current_job()
    if job is not None:
        fields = {"queue": job.queue, "job_id": job.id, "attempt": job.attempt, "worker": job.worker}
        if job.group is not None:
            fields["group"] = job.group
    tracing: Any = sys.modules.get("opentelemetry.trace")  # a program that has not loaded it has no spans
    if tracing is not None:
        span = tracing.get_current_span().get_span_context()
        if span.is_valid:
            fields["trace_id"], fields["span_id"] = f"{span.trace_id:032x}", f"{span.span_id:016x}"
    return fields


class JobContextFilter(logging.Filter):
    """Filter for a logging handler: it adds `queue`, `job_id`, `attempt`, `group`, `worker`, `trace_id` and `span_id`.

    They are those of the running job and the current span, None if there is none; fields that a record has are kept.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields to a record, and let it pass."""
        fields = job_fields()
        for name in JOB_FIELDS:
            if not hasattr(record, name):
                setattr(record, name, fields.get(name))
        return True


#: The attributes of every record; all others were given by `extra` or a filter.
PLAIN = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "color_message"})


class JsonLines(logging.Formatter):
    """Formatter of one JSON object a line: time, level, logger, process, message, and the fields that are given."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        line |= {
            name: value
            for name, value in vars(record).items()
            if name not in PLAIN and value is not None and name not in line
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def configure(level: int, *, tracebacks: bool = False, log_format: LogFormat = "text") -> None:
    """Log to stderr, control characters escaped; with `tracebacks`, every failed run with its traceback."""
    if log_format not in get_args(LogFormat):
        raise ValueError(f"log_format must be one of {', '.join(get_args(LogFormat))}, not {log_format!r}")
    handler = logging.StreamHandler(sys.stderr)
    watched = sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    if log_format == "json":
        handler.addFilter(JobContextFilter())
        handler.setFormatter(JsonLines())
    else:
        handler.setFormatter(Coloured() if watched else Escaping(LONG_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("penstock").setLevel(level)
    logging.getLogger("penstock.worker.run_log.tracebacks").setLevel(logging.DEBUG if tracebacks else logging.NOTSET)
