"""Hooks of an app in the child processes of its worker."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from penstock.sync import Penstock

PROGRAM = """
import contextlib, os
from contextvars import ContextVar
from penstock import current_job
from penstock.sync import Penstock

app = Penstock("sqlite:jobs.db")
around = ContextVar("around", default="")

@app.around("run")
@contextlib.contextmanager
def hook(running):
    token = around.set(f"around {running.queue}")
    yield
    around.reset(token)

@app.around("enqueue")
@contextlib.contextmanager
def stamp(sending):
    sending.headers["by"] = str(os.getpid())
    yield

@app.handler("plain")
def plain(payload):
    current_job().then("next", 1, id="n")
    return [around.get(), os.getpid()]

@app.handler("async")
async def handle(payload):
    return [around.get(), os.getpid()]
"""


def test_hooks_run_in_the_child_process_that_runs_the_handler(tmp_path: Path) -> None:
    """Children load the app by its name, and its hooks with it; a follow-up passes the hooks there."""
    (tmp_path / "hooked.py").write_text(PROGRAM, encoding="utf-8")
    command = [sys.executable, "-m", "penstock", "worker", "hooked:app", "--drain", "--processes", "1", "--id", "w1"]
    with Penstock(f"sqlite:{tmp_path}/jobs.db") as app:
        for name in ("plain", "async"):
            app.queue(name).enqueue(1, id="a")
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        results = [app.queue(name).result("a") for name in ("plain", "async")]
        status = app.queue("next").status("n")
    assert [around for around, _ in results] == ["around plain", "around async"]
    assert len({pid for _, pid in results} - {os.getpid()}) == 1
    assert status is not None
    assert status.headers == {"by": str(results[0][1])}
