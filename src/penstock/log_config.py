"""Logging of `penstock worker` and of other worker programs."""

from __future__ import annotations

import logging
import os
import sys

from penstock.model.printing import escape_controls, indent

__all__ = ["configure"]

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


def configure(level: int, *, tracebacks: bool = False) -> None:
    """Log to stderr, control characters escaped; with `tracebacks`, every failed run with its traceback."""
    handler = logging.StreamHandler(sys.stderr)
    watched = sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    handler.setFormatter(Coloured() if watched else Escaping(LONG_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("penstock").setLevel(level)
    logging.getLogger("penstock.worker.run_log.tracebacks").setLevel(logging.DEBUG if tracebacks else logging.NOTSET)
