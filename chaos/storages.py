"""Storages of a chaos run: a server of its own behind proxies, or a file on a small disk of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.storage.observing import STATS_MS
from tests.proxy import Proxy
from tests.servers import NoServerError, Server, redis_program, valkey_program

__all__ = [
    "EVERYWHERE",
    "OF_CLIENT_CLOCKS",
    "OF_LIMITS",
    "SingleServer",
    "SqliteFile",
    "StorageUnderTest",
    "stored_keys",
    "wait_for",
]


#: Seconds that a server may take to reach a state.
TIMEOUT = 60.0

#: Weights of the faults of every storage, of servers and of SQLite; their order is part of the plan of a seed.
EVERYWHERE: dict[str, float] = {
    "kill_child": 14, "stop_child": 6, "stop_parent": 4, "stop_worker": 4, "kill_worker": 5, "kill_parent": 3,
    "roll": 4, "kill_producer": 2,
}  # fmt: skip
ON_SERVERS: dict[str, float] = {
    "kill_server": 4, "restart_server": 1.5, "stop_server": 3, "maxmemory": 4, "script_flush": 5, "client_kill": 7,
    "lose_reply": 12, "lose_request": 6, "delay": 5, "cut": 8, "half_open": 4, "refuse": 3, "wrong_clock": 1.5,
}  # fmt: skip
#: A fault of runs of limits, whose code has two versions.
OF_LIMITS: dict[str, float] = {"deploy": 4}
#: A fault of runs of limits on a storage whose clock is that of its clients.
OF_CLIENT_CLOCKS: dict[str, float] = {"jump_clock": 4}
ON_SQLITE: dict[str, float] = {"full_disk": 5, "kill_writer": 5, "lock_file": 4}


#: The ends of the keys, and the tables, of statistics, which purge and the server delete after two weeks.
STATS_KEYS = (b":stats", b":history", b":minute", b":errors", b":error_order")
STATS_TABLES = frozenset({"stats", "history", "error_groups"})


class StorageUnderTest:
    """A storage for one run. Each role (a worker's or producer's name) has a URL of its own."""

    name = ""
    #: Weights of the faults that this storage can have.
    weights: dict[str, float] = EVERYWHERE
    #: Whether the storage has a clock that is not that of its clients.
    own_clock = True

    @property
    def url(self) -> str:
        """URL for the runner itself, which no fault affects."""
        raise NotImplementedError

    def url_for(self, role: str) -> str:
        """Return the URL for a process, on which faults may act."""
        return self.url

    def describe(self) -> str:
        """Return a short description for the report."""
        return self.name

    def heal(self) -> None:
        """End all faults of the storage itself."""

    def leftovers(self) -> list[str]:
        """Return the keys or rows that do not expire, without those of the schema itself."""
        raise NotImplementedError

    def remove(self) -> None:
        """Stop the servers and delete all data."""


class SingleServer(StorageUnderTest):
    """One Redis or Valkey server with an append-only file, and a proxy for each role."""

    weights = EVERYWHERE | ON_SERVERS

    def __init__(self, name: str, fsync: str) -> None:
        self.name = name
        self.fsync = fsync
        program = valkey_program() if name == "valkey" else redis_program()
        self.server = Server(program, "--appendonly", "yes", "--appendfsync", fsync, "--enable-debug-command", "local")
        self.server.start()
        self.proxies: dict[str, Proxy] = {}

    @property
    def url(self) -> str:
        return f"redis://{self.server.address}/0"

    def url_for(self, role: str) -> str:
        if role not in self.proxies:
            self.proxies[role] = Proxy(self.server.port).start()
        return f"redis://{self.proxies[role].address}/0"

    def describe(self) -> str:
        return f"{self.name}, appendfsync {self.fsync}"

    def heal(self) -> None:
        if self.server.process is None:
            self.server.restart()
        self.wait_until_loaded()
        for proxy in self.proxies.values():
            proxy.heal()
            proxy.cut()
        with contextlib.closing(self.client()) as client:
            client.config_set("maxmemory", 0)

    def client(self) -> Any:
        return self.server.client()

    def wait_until_loaded(self) -> None:
        """Wait until a restarted server has loaded its append-only file."""

        def loaded() -> bool:
            with contextlib.closing(self.client()) as client:
                return client.info("persistence")["loading"] == 0

        wait_for(loaded, "the server does not finish loading")

    def leftovers(self) -> list[str]:
        with contextlib.closing(self.client()) as client:
            return stored_keys(client)

    def remove(self) -> None:
        for proxy in self.proxies.values():
            proxy.close()
        self.server.remove()


class SqliteFile(StorageUnderTest):
    """One SQLite file, on its own tmpfs if that can be mounted; otherwise the disk is never filled."""

    name = "sqlite"
    weights = EVERYWHERE | ON_SQLITE
    own_clock = False
    MEGABYTES = 96
    #: Tables that keep rows without jobs: the schema's version, and the newest events, which are trimmed by count.
    PERMANENT_TABLES = frozenset({"meta", "events"})

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.MEGABYTES}m", "penstock-chaos", str(self.folder)]
        self.own_disk = (
            shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
        )
        self.path = self.folder / "jobs.db"
        self.ballast = self.folder / "ballast"

    @property
    def url(self) -> str:
        return f"sqlite:{self.path}"

    def describe(self) -> str:
        return f"sqlite on {f'a tmpfs of {self.MEGABYTES} MB' if self.own_disk else 'the usual disk'}"

    def fill(self) -> int:
        """Fill the disk; return the bytes written."""
        size = 0
        with self.ballast.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            for piece in (2**20, 4096):
                with contextlib.suppress(OSError):
                    while True:
                        size += file.write(bytes(piece))
        return size

    def heal(self) -> None:
        self.ballast.unlink(missing_ok=True)

    def leftovers(self) -> list[str]:
        import sqlite3

        left: list[str] = []
        connection = sqlite3.connect(self.path)
        for (table,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            if table not in self.PERMANENT_TABLES | STATS_TABLES and not table.startswith("sqlite_"):
                left += [f"{table}: {row!r}"[:300] for row in connection.execute(f'SELECT * FROM "{table}"')]
        connection.close()
        return left

    def remove(self) -> None:
        if self.own_disk:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    """Wait until a condition holds; raise `NoServerError` with the text of `otherwise` after a minute."""
    until = time.monotonic() + TIMEOUT
    while not condition():
        if time.monotonic() > until:
            raise NoServerError(otherwise)
        time.sleep(0.05)


def stored_keys(client: Any) -> list[str]:
    """Return the keys that do not expire within two minutes, without those of the schema; statistics expire later."""
    left: list[str] = []
    for key in client.scan_iter(count=1000):
        ttl = client.pttl(key)
        longest = STATS_MS if key.endswith(STATS_KEYS) else 120_000
        if not key.endswith((b":schema", b":families")) and not 0 <= ttl <= longest:
            left.append(f"{key!r} ({client.type(key).decode()}, ttl {ttl})")
    return left
