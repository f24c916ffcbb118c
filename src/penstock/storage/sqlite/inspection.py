"""Facts about the file for operators: its settings, its integrity, and the counters of its queues."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.model.job import Snapshot, State
from penstock.model.storage_info import FileInfo, QueueMeter
from penstock.storage.base import MAX_BYTES
from penstock.storage.sqlite.activity import forget_operators
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.file_access import find_exposures
from penstock.storage.sqlite.file_errors import find_obstacle
from penstock.storage.sqlite.flow_shown import show
from penstock.storage.sqlite.rows import STATES, read_job
from penstock.storage.sqlite.transaction import Transaction
from penstock.storage.sqlite.wakeup import find_foreign_directory

__all__ = ["forget_namespace", "inspect_file", "latest", "meters"]

#: Faults that the integrity check lists at most, and namespaces.
MAX_FAULTS, MAX_NAMESPACES = 10, 20

BUCKETS = {state: bucket for bucket, state in STATES.items()}


def inspect_file(tx: Transaction, engine: Engine, check: bool) -> FileInfo:
    """Return facts about the file; `check` reads all of it to find damage."""
    began = time.perf_counter()
    schema = tx.db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()[0]
    latency = (time.perf_counter() - began) * 1000
    faults = None
    if check:
        rows = tx.db.execute(f"PRAGMA quick_check({MAX_FAULTS})").fetchall()
        lines = [line for (text,) in rows for line in str(text).splitlines()]
        faults = [line for line in lines if line != "ok" and not line.startswith("***")]
    about = FileInfo(
        path="" if engine.memory else os.path.abspath(engine.path),
        version=sqlite3.sqlite_version,
        schema=schema,
        journal_mode=str(tx.db.execute("PRAGMA journal_mode").fetchone()[0]),
        synchronous=engine.synchronous,
        faults=faults,
        latency_ms=latency,
        namespaces=[name for (name,) in tx.all("namespaces", MAX_NAMESPACES) if isinstance(name, str)],
    )
    return about if engine.memory else _on_disk(about)


def _on_disk(about: FileInfo) -> FileInfo:
    status, room = os.stat(about.path), os.statvfs(os.path.dirname(about.path))
    log_size = 0
    with contextlib.suppress(OSError):  # SQLite deletes it with the last connection
        log_size = os.stat(about.path + "-wal").st_size
    return FileInfo(
        path=about.path, version=about.version, schema=about.schema, journal_mode=about.journal_mode,
        synchronous=about.synchronous, faults=about.faults, latency_ms=about.latency_ms,
        size=status.st_size, log_size=log_size, mode=status.st_mode & 0o777,
        free=room.f_bavail * room.f_frsize, filesystem=filesystem_of(about.path), namespaces=about.namespaces,
        obstacle=find_obstacle(about.path) or "", exposures=find_exposures(about.path),
        foreign_wake_directory=find_foreign_directory(about.path),
    )  # fmt: skip


def filesystem_of(path: str) -> str | None:
    """Return the kind of file system that a path is on, or None if that is unknown."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    except OSError:
        return None
    found, longest = None, -1
    for _, point, kind, *_ in mounts:
        point = point.encode().decode("unicode_escape")
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:  # the last one mounted at a path hides the others
            found, longest = kind, len(point)
    return found


def meters(tx: Transaction, names: Sequence[str]) -> list[QueueMeter]:
    """Return the counters of each of these queues."""
    found: list[Sequence[Any]] = [tx.one("meter", tx.now, tx.namespace, name) or (0, 0, 0, None) for name in names]
    return [QueueMeter(name, *row) for name, row in zip(names, found, strict=True)]


def latest(tx: Transaction, name: str, state: State, limit: int) -> list[Snapshot]:
    """Return finished jobs of one state, those that are kept longest first; fewer if they reach `MAX_BYTES`."""
    queue = tx.queue(name)
    if queue is None:
        return []
    found: list[Snapshot] = []
    room = MAX_BYTES
    with contextlib.closing(tx.rows("latest", queue.k, BUCKETS[state], tx.now, limit)) as rows:
        for row in rows:
            if room <= 0:
                break
            job = read_job(row)
            found.append(show(tx, queue, job))
            room -= job.size
    return found


def forget_namespace(tx: Transaction) -> None:
    """Delete the workers and events of the namespace; its queues are deleted one by one."""
    for name in (
        "forget_workers",
        "forget_events",
        "limits_forget",
        "outbox_forget",
        "families_forget",
        "stats_forget",
        "history_forget",
        "error_groups_forget",
    ):
        tx.run(name, tx.namespace)
    forget_operators(tx)
