"""Where the jobs of a run are: a server of its own behind proxies, or a file on a small disk of its own."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.proxy import Proxy
from tests.servers import NoServerError, Server, redis_program, valkey_program

__all__ = ["EVERYWHERE", "Place", "ServerPlace", "SqlitePlace", "stored_keys", "wait_for"]


#: How long (seconds) a server may take to do what it should.
PATIENCE = 60.0

#: How often each fault is drawn, by the places where it can be.
EVERYWHERE: dict[str, float] = {
    "kill_child": 14, "stop_child": 6, "stop_parent": 4, "stop_worker": 4, "kill_worker": 5, "kill_parent": 3,
    "roll": 4, "kill_producer": 2,
}  # fmt: skip
ON_SERVERS: dict[str, float] = {
    "kill_server": 4, "restart_server": 1.5, "stop_server": 3, "maxmemory": 4, "script_flush": 5, "client_kill": 7,
    "lose_reply": 12, "lose_request": 6, "delay": 5, "cut": 8, "half_open": 4, "refuse": 3, "wrong_clock": 1.5,
}  # fmt: skip
ON_SQLITE: dict[str, float] = {"full_disk": 5, "kill_writer": 5, "lock_file": 4}


class Place:
    """A storage for one run. Each role (a worker's or producer's name) has a URL of its own."""

    name = ""
    #: How often each fault is drawn here.
    weights: dict[str, float] = EVERYWHERE
    #: Whether the storage has a clock that is not that of its clients.
    own_clock = True

    @property
    def url(self) -> str:
        """The straight way, for the runner itself."""
        raise NotImplementedError

    def url_for(self, role: str) -> str:
        """The way of a process, which faults may lie on."""
        return self.url

    def describe(self) -> str:
        """A few words for the report."""
        return self.name

    def heal(self) -> None:
        """End every fault of the place itself."""

    def leftovers(self) -> list[str]:
        """What is stored beside the schema's own marks and what goes away by itself."""
        raise NotImplementedError

    def remove(self) -> None:
        """Stop everything and forget it."""


class ServerPlace(Place):
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
        self.until_loaded()
        for proxy in self.proxies.values():
            proxy.heal()
            proxy.cut()
        with contextlib.closing(self.client()) as client:
            client.config_set("maxmemory", 0)

    def client(self) -> Any:
        return self.server.client()

    def until_loaded(self) -> None:
        """Wait until a server that was started again has read its file."""

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


class SqlitePlace(Place):
    """One file, on a tmpfs of its own if one can be mounted; without one the disk cannot be filled."""

    name = "sqlite"
    weights = EVERYWHERE | ON_SQLITE
    own_clock = False
    MEGABYTES = 96
    #: What outlives the jobs: the schema's version, and the newest lines of the feed, which is trimmed.
    STANDING = frozenset({"meta", "events"})

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "disk"
        self.folder.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.MEGABYTES}m", "penstock-chaos", str(self.folder)]
        self.small = shutil.which("mount") is not None and subprocess.run(command, capture_output=True).returncode == 0
        self.path = self.folder / "jobs.db"
        self.ballast = self.folder / "ballast"

    @property
    def url(self) -> str:
        return f"sqlite:{self.path}"

    def describe(self) -> str:
        return f"sqlite on {f'a tmpfs of {self.MEGABYTES} MB' if self.small else 'the usual disk'}"

    def fill(self) -> int:
        """Leave no room on the disk; gives the bytes it took."""
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
            if table not in self.STANDING and not table.startswith("sqlite_"):
                left += [f"{table}: {row!r}"[:300] for row in connection.execute(f'SELECT * FROM "{table}"')]
        connection.close()
        return left

    def remove(self) -> None:
        if self.small:
            subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)


def wait_for(condition: Callable[[], object], otherwise: str) -> None:
    """Wait until a condition holds, for a minute at most."""
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            raise NoServerError(otherwise)
        time.sleep(0.05)


def stored_keys(client: Any) -> list[str]:
    """The keys of a server that do not go away by themselves soon; the marks of the schema are to stay."""
    left: list[str] = []
    for key in client.scan_iter(count=1000):
        ttl = client.pttl(key)
        if not key.endswith((b":schema", b":families")) and not 0 <= ttl <= 120_000:
            left.append(f"{key!r} ({client.type(key).decode()}, ttl {ttl})")
    return left
