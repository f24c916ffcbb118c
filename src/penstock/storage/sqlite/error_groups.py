"""Error groups: failed jobs of a queue whose errors have one key. The index `jobs_error` has their jobs."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

from penstock.errors import ErrorKind, JobError
from penstock.model.clock import MAX_MS
from penstock.model.fingerprint import key_of, shorten
from penstock.model.job import Snapshot
from penstock.storage.base import MAX_BYTES, Page
from penstock.storage.observing import MAX_ERROR_GROUPS, STATS_MS, ErrorGroup, ErrorGroupPage, page_of_groups
from penstock.storage.sqlite.flow_shown import show
from penstock.storage.sqlite.rows import LARGEST, read_job
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["error_groups", "group_jobs", "note_error"]

_TYPES = (str, str, str, str, int, int, int, str)


def note_error(tx: Transaction, queue: QueueRow, id: str, error: bytes | None) -> None:
    """Count a failure in its group. The group that was seen longest ago makes room for a new one."""
    key = key_of(error)
    if key is None or error is None:
        return
    group = tx.one("error_group_get", tx.namespace, queue.name, key, tx.now - STATS_MS)
    if group is None or (*map(type, group),) != (int, int, str, str, str):
        read = JobError.decode(error)
        group = (tx.now, 0, shorten(read.type), shorten(read.message), read.kind.value)
    first, count, *texts = group
    tx.run("error_group_put", tx.namespace, queue.name, key, first, tx.now, count + 1, *texts, id)
    if count == 0:
        tx.run("error_group_cap", tx.namespace, queue.name, MAX_ERROR_GROUPS)


def error_groups(tx: Transaction, name: str, after: str | None, limit: int) -> ErrorGroupPage:
    """Return the error groups of a queue, the one seen last first."""
    queue = tx.queue(name)
    rows = tx.all("error_groups_all", tx.namespace, name, tx.now - STATS_MS, MAX_ERROR_GROUPS)
    groups = [group for row in rows if (group := _read_group(tx, queue, row)) is not None]
    return page_of_groups(groups, tx.now, after, limit)


def _read_group(tx: Transaction, queue: QueueRow | None, row: Sequence[Any]) -> ErrorGroup | None:
    if (*map(type, row),) != _TYPES:
        return None
    key, type_, message, kind, first, last, count, sample = row
    if kind not in tuple(ErrorKind) or not (0 <= first <= MAX_MS and 0 <= last <= MAX_MS and count > 0):
        return None
    return ErrorGroup(
        key=key, type=type_, message=message, kind=ErrorKind(kind), first=first, last=last, count=count,
        open=0 if queue is None else tx.one("error_group_open", queue.k, key)[0], sample=sample,
    )  # fmt: skip


def group_jobs(tx: Transaction, name: str, key: str, before: int | None, limit: int) -> Page:
    """Return the failed jobs of a group with smaller numbers, the one that failed last first."""
    queue = tx.queue(name)
    jobs: list[Snapshot] = []
    if queue is None:
        return Page(jobs)
    room, last = MAX_BYTES, 0
    params = queue.k, key, LARGEST if before is None else before, limit + 1
    with closing(tx.rows("error_group_jobs", *params)) as rows:
        for row in rows:
            if len(jobs) == limit or (room <= 0 and jobs):
                return Page(jobs, str(last))
            job = read_job(row)
            last, room = job.number or 0, room - job.size
            if not job.expired(tx.now):
                jobs.append(show(tx, queue, job))
    return Page(jobs)
