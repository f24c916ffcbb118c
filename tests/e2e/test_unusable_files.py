"""`penstock worker` on SQLite files that cannot be used: it ends with exit code 1 and one line with the way out."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from tests.e2e.conftest import Program, Stage, until


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:{tmp_path / 'jobs.db'}"


def error_line(worker: Program) -> str:
    """Return the line that the command ends with."""
    assert "Traceback" not in worker.output_text
    return worker.output_text.splitlines()[-1]


def other_url(stage: Stage, path: Path) -> None:
    stage.url = f"sqlite:{path}"


@pytest.mark.parametrize("options", [(), ("--wait",)])
async def test_a_worker_refuses_the_database_of_another_program(
    stage: Stage, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Exit code 1 and a line that names a table of it, also with --wait."""
    path = tmp_path / "site.db"
    db = sqlite3.connect(path)
    db.execute("create table jobs (id integer primary key)")
    db.commit()
    db.close()
    other_url(stage, path)
    worker = stage.worker(*options)
    assert await worker.ended() == 1
    assert error_line(worker).startswith(f"Error: {path} is the database of another program (it has the table jobs)")


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_worker_ends_when_its_file_is_deleted(stage: Stage, tmp_path: Path, processes: int) -> None:
    """Exit code 1 within seconds, and a line that names the deletion; jobs in the file are not waited for."""
    path = tmp_path / "victim.db"
    other_url(stage, path)
    worker = stage.worker(processes=processes)
    await until(path.exists)
    await until(lambda: worker.workers() or (not processes and "starts" in worker.output_text))
    path.unlink()
    assert await worker.ended() == 1
    assert f"{path} was deleted while it was open" in error_line(worker)
    assert "ERROR" in worker.output_text


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_worker_ends_when_its_file_is_damaged(stage: Stage, tmp_path: Path, processes: int) -> None:
    """Exit code 1 for a file that is damaged under a running worker, and again at each start."""
    for n in range(200):
        await stage.app.queue("pad").enqueue("x" * 900, id=f"p{n}")
    worker = stage.worker(processes=processes)
    await until(lambda: worker.workers() or (not processes and "starts" in worker.output_text))
    path = tmp_path / "jobs.db"
    with sqlite3.connect(path) as db:
        db.execute("pragma wal_checkpoint")
    db.close()
    with path.open("r+b") as file:
        file.seek(2048)
        file.write(os.urandom(path.stat().st_size - 2048))
    assert await worker.ended() == 1
    assert "is damaged" in error_line(worker)
    again = stage.worker(processes=processes)
    assert await again.ended() == 1
    assert f"sqlite3 {path} .recover" in error_line(again)
