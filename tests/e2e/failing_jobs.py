"""An app whose handlers fail, hang, crash and fork. `note` of `tests.e2e.jobs` writes the lines of its log."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import subprocess
import sys
import time
from typing import Any

from penstock import Job, Penstock
from penstock.worker.supervisor.stacks import STACK_SIGNAL
from tests.e2e.jobs import note

app = Penstock(namespace=os.environ.get("PENSTOCK_NAMESPACE", "penstock"))


@app.handler("raises", max_retries=1, min_backoff=0.01)
async def raises(payload: dict[str, Any]) -> None:
    raise ConnectionError("refused")


@app.handler("hangs", timeout=0.2, max_timeouts=1)
def hangs(payload: dict[str, Any]) -> None:
    time.sleep(600)


@app.handler("fragile", timeout=0.2, max_timeouts=1)
def fragile(payload: dict[str, Any]) -> None:
    """Hang in a process that the request for its stacks ends."""
    assert STACK_SIGNAL is not None
    faulthandler.unregister(STACK_SIGNAL)
    time.sleep(600)


@app.handler("ignores", timeout=0.2, max_timeouts=1)
async def ignores(payload: dict[str, Any]) -> None:
    """Ignore the cancellation."""
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            note(payload, "ignored")


@app.handler("dies", max_stalls=1)
async def dies(payload: dict[str, Any]) -> None:
    os.abort() if payload["how"] == "abort" else os._exit(3)


@app.handler("forks", timeout=60)
def forks(payload: dict[str, Any], job: Job) -> None:
    """Fork; the copy returns from the handler."""
    pid = os.fork()
    if pid:
        note(payload, "copy", pid)


@app.handler("forks-async", timeout=60)
async def forks_async(payload: dict[str, Any], job: Job) -> str:
    """Fork; the copy awaits, as this process does."""
    pid = os.fork()
    if pid:
        note(payload, "copy", pid)
    await asyncio.sleep(0.05)
    await job.progress(0.5)
    return "alive"


@app.handler("starts", timeout=600)
def starts(payload: dict[str, Any]) -> None:
    """Start two programs, one in a session of its own, and run until the process is killed."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    pids = [subprocess.Popen(sleep, start_new_session=own).pid for own in (False, True)]
    note(payload, "started", *pids)
    time.sleep(600)
