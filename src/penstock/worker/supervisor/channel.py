"""A line of text both ways between a parent and a child; its end says that the other one is gone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable

__all__ = ["Channel"]


class Channel:
    """One end of a socket pair on the event loop. Words are short: a child that does not read stops nobody."""

    def __init__(self, end: socket.socket, heard: Callable[[str], None], gone: Callable[[], None]) -> None:
        self._end = end
        self._heard = heard
        self._gone = gone
        self._rest = b""
        self._loop = asyncio.get_running_loop()
        end.setblocking(False)
        self._loop.add_reader(end, self._read)

    def send(self, words: str) -> None:
        """Say something; to one who is gone or does not listen it is lost."""
        with contextlib.suppress(OSError):
            self._end.send(words.encode() + b"\n")

    def read_rest(self) -> None:
        """Hear what was said before the other one was gone."""
        while self._end.fileno() >= 0 and self._read():
            pass

    def close(self) -> None:
        """Hang up. Idempotent."""
        if self._end.fileno() >= 0:
            self._loop.remove_reader(self._end)
            self._end.close()

    def _read(self) -> bool:
        try:
            data = self._end.recv(65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._end)
            self._gone()
            return False
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._heard(line.decode())
        return True
