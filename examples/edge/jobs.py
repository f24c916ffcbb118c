"""The app that device and server share: the queue of readings and its handler."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from penstock import Job
from penstock.sync import Penstock

URL = os.environ.get("PENSTOCK_URL", "sqlite:penstock.db")
ARCHIVE = Path(os.environ.get("DATA", ".")) / "archive.db"

# A power cut loses what is not on disk yet, so the device waits for its disk. For a server, its settings decide.
app = Penstock(URL, durability="fsync" if URL.startswith("sqlite:") else None)


@dataclass
class Reading:
    sensor: str
    taken_at: datetime
    celsius: float


@app.handler("readings", timeout=10, result_ttl=86_400)
def store(reading: Reading, job: Job) -> None:
    """Keep a reading for good. The job's id is the row's key: a second run changes nothing."""
    with closing(sqlite3.connect(ARCHIVE)) as archive, archive:
        archive.execute("create table if not exists readings (number integer primary key, id unique, sensor, taken_at)")
        archive.execute(
            "insert or ignore into readings (id, sensor, taken_at) values (?, ?, ?)",
            (job.id, reading.sensor, reading.taken_at.isoformat()),
        )
