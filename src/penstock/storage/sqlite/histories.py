"""report and read: progress, lines and parts of runs, the histories of jobs, and the entry of a failed attempt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.history import (
    MAX_ATTEMPTS,
    MAX_LINES,
    MAX_LOG,
    MAX_PARTS,
    MAX_STREAM,
    AttemptOutcome,
    HistoryEntry,
    HistoryName,
    HistoryPage,
    Report,
    Reported,
    attempt_data,
    line_data,
)
from penstock.storage.base import MAX_BYTES
from penstock.storage.sqlite.journal import add_checkpoint
from penstock.storage.sqlite.rows import RUNNING, JobRow
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["add_attempt", "read", "report"]

KINDS: dict[HistoryName, int] = {"attempts": 0, "log": 1, "stream": 2}

_KEPT, _LOST = Reported(True), Reported(False)


def add_attempt(tx: Transaction, queue: QueueRow, job: JobRow, outcome: AttemptOutcome, error: bytes = b"") -> None:
    """Add the run of a job, which has just ended, to its attempts; the oldest but the first go."""
    run = tx.now, job.attempts, outcome, job.begun, job.worker or "", error
    [(n,)] = tx.all("attempt_add", queue.k, job.id, *run)
    if n > MAX_ATTEMPTS:
        tx.run("attempts_trim", queue.k, job.id, n - MAX_ATTEMPTS + 1)


def report(tx: Transaction, reports: Sequence[Report]) -> list[Reported]:
    """Store progress, lines and parts of runs whose tokens are right."""
    return [_report_all(tx, each) if each.checkpoints else _KEPT if _report(tx, each) else _LOST for each in reports]


def _report_all(tx: Transaction, given: Report) -> Reported:
    """Store a report with checkpoints."""
    queue = tx.queue(given.queue)
    job = tx.job(queue, given.id) if queue else None
    if queue is None or job is None or job.place != RUNNING or job.token != given.token or not _report(tx, given):
        return _LOST
    return Reported(True, tuple(add_checkpoint(tx, queue, job, each) for each in given.checkpoints))


def _report(tx: Transaction, given: Report) -> bool:
    queue = tx.queue(given.queue)
    if queue is None:
        return False
    if given.progress is not None and not tx.run("report_progress", given.progress, queue.k, given.id, given.token):
        return False
    listed = given.lines or given.parts
    row = tx.one("report_run", queue.k, given.id, given.token) if listed or given.progress is None else (0,)
    if row is None:
        return False
    attempt = row[0] if type(row[0]) is int else 0
    if given.lines:
        _add_lines(tx, queue, given, attempt)
    if given.parts:
        _add_parts(tx, queue, given, attempt)
    return True


def _add_lines(tx: Transaction, queue: QueueRow, given: Report, attempt: int) -> None:
    """Add lines to the log of a job, without those that it has; the oldest beyond the bounds go."""
    n, size, known = _last_entry(tx, queue, given, KINDS["log"])
    lines = given.lines[max(0, known - given.first + 1) :]
    if not lines:
        return
    number = given.first + len(given.lines) - 1
    for i, line in enumerate(lines, 1):
        data = line_data(line)
        size += len(data)
        mark = f"{given.token} {number}" if i == len(lines) else None
        tx.run("history_add", queue.k, given.id, KINDS["log"], n + i, tx.now - line.age, attempt, size, mark, data)
    tx.run("history_trim", queue.k, given.id, KINDS["log"], n + len(lines) - MAX_LINES, size - MAX_LOG)
    tx.notify_readers(queue.name, given.id)


def _add_parts(tx: Transaction, queue: QueueRow, given: Report, attempt: int) -> None:
    """Add parts to the stream of a job, without those that it has; the oldest beyond the bounds go."""
    n, size, known = _last_entry(tx, queue, given, KINDS["stream"])
    start = n - known  # the number of the last part of the runs before
    last = given.first_part + len(given.parts) - 1
    if last <= known:
        return
    for number, data in enumerate(given.parts, given.first_part):
        if number > known:
            size += len(data)
            mark = f"{given.token} {number}" if number == last else None
            tx.run("history_add", queue.k, given.id, KINDS["stream"], start + number, tx.now, attempt, size, mark, data)
    tx.run("history_trim", queue.k, given.id, KINDS["stream"], start + last - MAX_PARTS, size - MAX_STREAM)
    tx.notify_readers(queue.name, given.id)


def _last_entry(tx: Transaction, queue: QueueRow, given: Report, kind: int) -> tuple[int, int, int]:
    """Return number and size of the last entry of a log or stream, and its number in this run; 0 if of another."""
    n, size, mark = tx.one("history_last", queue.k, given.id, kind) or (0, 0, "")
    if type(n) is not int or type(size) is not int:
        return 0, 0, 0  # damaged: it is written over
    token, _, number = str(mark or "").partition(" ")
    return n, size, int(number) if token == given.token and number.isdecimal() else 0


def read(tx: Transaction, name: str, id: str, history: HistoryName, after: int, limit: int) -> HistoryPage | None:
    """Return a page of a history, without entries that cannot be read; None if there is no such job."""
    queue = tx.queue(name)
    job = tx.one("history_job", queue.k, id) if queue else None
    if queue is None or job is None or (type(job[0]) is int and job[0] <= tx.now):
        return None
    found: list[HistoryEntry] = []
    first = tx.one("history_first", queue.k, id) if history == "attempts" else None
    room, more = MAX_BYTES, False
    for row in tx.all("history_read", queue.k, id, KINDS[history], after, limit + 1):
        if room <= 0 or len(found) == limit:
            more = True
            break
        entry = _entry(history, row, first[0] if first else b"")
        if entry is not None:
            found.append(entry)
            room -= len(entry.data)
    return HistoryPage(found, more)


def _entry(history: HistoryName, row: Sequence[Any], first: Any) -> HistoryEntry | None:
    """Return the entry of a row; None if it cannot be read."""
    n, at, attempt, outcome, started, worker, data = row
    if {type(n), type(at), type(attempt)} != {int} or n < 1:
        return None
    if history != "attempts":
        return HistoryEntry(n, at, attempt, data) if isinstance(data, bytes) else None
    data = first if data is None else data
    if not (isinstance(outcome, str) and isinstance(worker, str) and isinstance(data, bytes)):
        return None
    begun = started if type(started) is int and started >= 0 else 0
    return HistoryEntry(n, at, attempt, attempt_data(outcome, begun, worker, data))  # type: ignore[arg-type]
