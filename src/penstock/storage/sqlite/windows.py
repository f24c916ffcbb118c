"""Windows: ids that are taken for a time from the acceptance of their jobs, see `NewJob`."""

from __future__ import annotations

from penstock.model.job import NewJob
from penstock.storage.sqlite.rows import JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["free_window", "postpone", "release_window", "take_window", "window_end"]


def window_end(tx: Transaction, queue: QueueRow, new: NewJob) -> int | None:
    """Return when the open window of an id ends; a put without a window looks at none."""
    return None if new.window is None else _end(tx, queue, new.id)


def _end(tx: Transaction, queue: QueueRow, id: str) -> int | None:
    row = tx.one("window_get", queue.k, id, tx.now)
    return row and row[0]


def take_window(tx: Transaction, queue: QueueRow, id: str, window: int | None, start: int) -> None:
    """Take an id for a window from `start` on; None takes none."""
    if window is not None:
        tx.run("window_set", queue.k, id, start + window)


def free_window(tx: Transaction, queue: QueueRow, job: JobRow) -> None:
    """Free the id of a job that has not completed; the window in which it was put goes on."""
    if job.window_ms is None:
        return
    if job.earliest is not None and job.earliest > tx.now:
        tx.run("window_set", queue.k, job.id, job.earliest)
    else:
        tx.run("window_drop", queue.k, job.id)


def postpone(job: JobRow, until: int) -> None:
    """Make a job wait for the end of the window in which it was put."""
    job.earliest = until
    if job.due < until:
        job.due = job.time = until


def release_window(tx: Transaction, queue: QueueRow, successor: JobRow) -> None:
    """Put a successor that is released into the window of its id, if that is open, and take its own."""
    if successor.window_ms is None:
        return
    until = _end(tx, queue, successor.id)
    if until is not None:
        postpone(successor, until)
    take_window(tx, queue, successor.id, successor.window_ms, max(successor.created, successor.due))
