"""Sync apps with real worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from penstock import State, Worker
from penstock.app_loader import source_of
from penstock.sync import Penstock

JOBS = """
from penstock.sync import Penstock

app = Penstock("sqlite:jobs.db")


@app.handler("double")
def double(payload: int) -> int:
    return 2 * payload
"""


def test_the_command_runs_a_sync_app(tmp_path: Path) -> None:
    """`penstock worker module:app` runs a sync app, in child processes too."""
    (tmp_path / "plain_jobs.py").write_text(JOBS)
    with Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        app.queue("double").enqueue(21, id="a")
        command = [sys.executable, "-m", "penstock", "worker", "plain_jobs:app", "--processes", "1", "--drain"]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert app.queue("double").result("a") == 42


def test_an_app_is_found_beside_odd_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """An app is found in a module that has objects whose `__module__` is no text."""
    module = types.ModuleType("odd_jobs")
    odd = type("Odd", (), {"__module__": property(lambda self: "odd")})
    vars(module).update(odd=odd(), app=Penstock("memory:"))
    monkeypatch.setitem(sys.modules, "odd_jobs", module)
    assert source_of(module.app.async_app) == "odd_jobs:app"


async def test_a_worker_takes_a_sync_app(tmp_path: Path) -> None:
    """`Worker(app)` runs the handlers of a sync app."""
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")

    @app.handler("double")
    def double(payload: int) -> int:
        return 2 * payload

    app.queue("double").enqueue(4, id="a")
    await Worker(app).drain()
    status = app.queue("double").status("a")
    app.close()
    assert status is not None
    assert (status.state, status.result) == (State.COMPLETED, 8)
    assert double(1) == 2
