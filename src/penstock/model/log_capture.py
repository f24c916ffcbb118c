"""A logging handler that keeps the records of running handlers in the logs of their jobs."""

from __future__ import annotations

import logging

from penstock.model.context import current_job
from penstock.model.history import LogLevel

__all__ = ["JobLogHandler", "capture"]

#: The records of these loggers are about jobs, not of them; those of the sender of lines would be sent for ever.
OWN = "penstock"


class JobLogHandler(logging.Handler):
    """Adds each record of code that runs in a handler to the log of its job, formatted; others are passed over."""

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record to the log of the running job, if there is one."""
        if record.name == OWN or record.name.startswith(f"{OWN}."):
            return
        job = current_job()
        if job is None:
            return
        try:
            job.log(self.format(record), level_of(record.levelno))
        except Exception:
            self.handleError(record)


def level_of(number: int) -> LogLevel:
    """Return the level of a record's number: the highest one that is not above it."""
    if number >= logging.CRITICAL:
        return "critical"
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warning"
    return "info" if number >= logging.INFO else "debug"


def capture(logger: logging.Logger | str | None, level: int | str) -> JobLogHandler:
    """Add a `JobLogHandler` to a logger, or change the level of the one that it has; returns the handler.

    A logger that would drop records of this level gets this level.
    """
    target = logger if isinstance(logger, logging.Logger) else logging.getLogger(logger)
    found = [each for each in target.handlers if isinstance(each, JobLogHandler)]
    handler = found[0] if found else JobLogHandler()
    handler.setLevel(level)
    if not found:
        target.addHandler(handler)
    if target.getEffectiveLevel() > handler.level:
        target.setLevel(handler.level)
    return handler
