"""Logging of `penstock worker` and of other worker programs."""

from __future__ import annotations

import logging
import os
import sys

__all__ = ["configure"]

LONG_FORMAT = "%(asctime)s %(levelname)s %(process)d %(name)s: %(message)s"

#: For a terminal: the time of day, and nothing that is the same in every line.
SHORT_FORMAT = "%(asctime)s.%(msecs)03d %(process)d %(message)s"

GREY, RED, GREEN, YELLOW, RESET = "\x1b[90m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"

#: The colour of a line: of a run by its outcome, of any other by its level.
OUTCOMES = {"completed": GREEN, "failed": RED}
LEVELS = {logging.DEBUG: GREY, logging.INFO: "", logging.WARNING: YELLOW, logging.ERROR: RED, logging.CRITICAL: RED}


class Coloured(logging.Formatter):
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
    """Log to stderr; with `tracebacks`, every failed run with its traceback."""
    handler = logging.StreamHandler(sys.stderr)
    watched = sys.stderr.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    handler.setFormatter(Coloured() if watched else logging.Formatter(LONG_FORMAT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    logging.getLogger("penstock").setLevel(level)
    logging.getLogger("penstock.worker.run_log.tracebacks").setLevel(logging.DEBUG if tracebacks else logging.NOTSET)
