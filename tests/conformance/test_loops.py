"""Apps that stay open across event loops."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import Backend, RedisBackend, SqliteBackend

pytestmark = [pytest.mark.beyond_model, pytest.mark.only("sqlite", "redis", "valkey")]

SCRIPT = """
import asyncio, sys
from penstock import Penstock

app = Penstock(sys.argv[1], namespace=sys.argv[2])

async def again(payload):
    queue = app.queue("q")
    await queue.enqueue(payload)
    return sum((await queue.counts()).values())

async def delete():
    await app.queue("q").delete()
    await app.close()

print([asyncio.run(again(i)) for i in range(3)])
asyncio.run(delete())
"""


THREADS = """
import asyncio, sys, threading
from penstock import Penstock, Worker

app = Penstock(sys.argv[1], namespace=sys.argv[2])
calls = {
    "enqueue": lambda: app.queue("q").enqueue(1),
    "call": lambda: app.queue("q").call(1, timeout=1),
    "counts": lambda: app.queue("q").counts(),
    "reserve": lambda: app.queue("q").reserve(),
    "open": lambda: app.open(),
    "drain": lambda: Worker(app).drain(),
}

def refused(name):
    async def call():
        await calls[name]()
    try:
        asyncio.run(call())
    except RuntimeError as error:
        print(name, "penstock.sync.Penstock" in str(error))

async def main():
    async with app:
        await app.queue("q").enqueue(1)
        for name in calls:
            await asyncio.to_thread(refused, name)
        print((await app.queue("q").counts())["queued"])
        await app.queue("q").delete()
    await asyncio.to_thread(asyncio.run, calls["enqueue"]())  # a closed app may go to another loop
    await asyncio.to_thread(asyncio.run, app.queue("q").delete())

asyncio.run(main())
"""


def run_script(backend: Backend, script: str) -> str:
    """Run a program on the storage; returns its output."""
    url = backend.url if isinstance(backend, RedisBackend) else ""
    if isinstance(backend, SqliteBackend):
        url = f"sqlite:{backend.path}"
    command = [sys.executable, "-W", "ignore", "-c", script, url, backend.namespace]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()


def test_an_open_app_works_in_the_next_event_loop(backend: Backend) -> None:
    """Scripts and notebooks call `asyncio.run` repeatedly with one app that stays open between the calls."""
    assert run_script(backend, SCRIPT) == "[1, 2, 3]"


def test_an_app_in_two_event_loops_at_once_is_an_error_that_names_the_sync_app(backend: Backend) -> None:
    """Every call in a second thread's loop raises `RuntimeError`, and the first loop goes on."""
    lines = run_script(backend, THREADS).splitlines()
    assert lines == [f"{name} True" for name in ("enqueue", "call", "counts", "reserve", "open", "drain")] + ["1"]
