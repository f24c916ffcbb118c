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


def test_an_open_app_works_in_the_next_event_loop(backend: Backend) -> None:
    """Scripts and notebooks call `asyncio.run` repeatedly with one app that stays open between the calls."""
    url = backend.url if isinstance(backend, RedisBackend) else ""
    if isinstance(backend, SqliteBackend):
        url = f"sqlite:{backend.path}"
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, url, backend.namespace]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (ran.stdout.strip(), ran.returncode) == ("[1, 2, 3]", 0), ran.stderr
