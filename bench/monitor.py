"""The commands of a server's clients, read from its MONITOR, without the commands inside scripts."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import urlsplit

from penstock.storage.redis.scripts import script

LINE = re.compile(rb'^\+(?P<at>[\d.]+) \[\d+ (?P<client>[^\]]+)\] "(?P<name>[^"]+)"(?: "(?P<first>[0-9a-f]{40})")?')


def _scripts() -> Iterator[tuple[str, str]]:
    for path in (files("penstock.storage.redis") / "lua").iterdir():
        name = path.name.removesuffix(".lua")
        if not name.startswith("_"):
            yield script(name).sha, name


class Command(NamedTuple):
    """Command of a client: when the server ran it, and its name, or that of its script."""

    at: float
    name: str


class Monitor:
    """Recorder of commands from its creation until `commands` is called."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._names = dict(_scripts())
        self._socket = socket.create_connection((parts.hostname or "", parts.port or 0))
        self._socket.sendall(b"MONITOR\r\n")
        assert self._socket.recv(5) == b"+OK\r\n"

    def commands(self) -> list[Command]:
        """Stop recording and return the commands."""
        self._socket.settimeout(0.05)
        received = bytearray()
        with contextlib.suppress(TimeoutError):
            while more := self._socket.recv(1 << 20):
                received += more
        self._socket.close()
        found: list[Command] = []
        for line in bytes(received).splitlines():
            match = LINE.match(line)
            if match and match["client"] != b"lua":
                name = self._names.get((match["first"] or b"").decode(), match["name"].decode().upper())
                found.append(Command(float(match["at"]), name))
        return found
