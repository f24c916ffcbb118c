"""What a server was asked to do, told by its MONITOR: commands from clients, apart from those inside scripts."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.storage.redis.scripts import script

LINE = re.compile(rb'^\+(?P<at>[\d.]+) \[\d+ (?P<who>[^\]]+)\] "(?P<name>[^"]+)"(?: "(?P<first>[0-9a-f]{40})")?')


def _scripts() -> Iterator[tuple[str, str]]:
    for path in (files("penstock.storage.redis") / "lua").iterdir():
        name = path.name.removesuffix(".lua")
        if not name.startswith("_"):
            yield script(name).sha, name


class Command(NamedTuple):
    """One command of a client: when the server ran it, and its name, or that of its script."""

    at: float
    name: str


class Monitor:
    """Listens from its making on; `commands` ends it and gives what was heard."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._names = dict(_scripts())
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._socket.sendall(b"MONITOR\r\n")
        assert self._socket.recv(5) == b"+OK\r\n"

    def commands(self) -> list[Command]:
        self._socket.settimeout(0.05)
        heard = bytearray()
        with contextlib.suppress(TimeoutError):
            while more := self._socket.recv(1 << 20):
                heard += more
        self._socket.close()
        found: list[Command] = []
        for line in bytes(heard).splitlines():
            told = LINE.match(line)
            if told and told["who"] != b"lua":
                name = self._names.get((told["first"] or b"").decode(), told["name"].decode().upper())
                found.append(Command(float(told["at"]), name))
        return found
