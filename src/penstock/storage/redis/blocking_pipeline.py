"""Connections for threads without an event loop: each serves one thread at a time."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from struct import Struct
from typing import Any

from penstock.storage.redis.clients import CONNECT_TIMEOUT
from penstock.storage.redis.pipeline import MORE, NOT_PRIMARY, NoAnswer, new_reader

__all__ = ["ThreadConnectionPool"]

#: A `struct timeval`.
_TIMEVAL = Struct("@ll")


class ThreadConnection:
    """A connection that serves one thread at a time."""

    def __init__(self, connection: Any, read_timeout: float) -> None:
        self._connection = connection
        self._socket = connection._sock
        self._timeout = read_timeout
        _set_timeout(self._socket, read_timeout)
        self._reader = new_reader()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @property
    def stale(self) -> bool:
        """Whether there are bytes to read though no command is under way: the server has closed the connection."""
        return bool(self._poll.poll(0))

    def call(self, commands: bytes, count: int, timeout: float) -> list[Any]:
        """Send commands, wait for their answers, and return them, errors among them.

        Raises `NoAnswer` after this time (seconds) without any bytes.
        """
        if timeout != self._timeout:
            self._timeout = timeout
            _set_timeout(self._socket, timeout)
        reader = self._reader
        answers: list[Any] = []
        self._socket.sendall(commands)
        while True:
            reader.feed(self._read())
            while (answer := reader.gets()) is not MORE:
                answers.append(answer)
                if len(answers) == count:
                    return answers

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            raise OSError(f"no answer for {self._timeout:.3g} s") from None
        if not data:
            raise OSError("the server closed the connection")
        return data

    def close(self) -> None:
        self._connection.disconnect()


def _set_timeout(it: Any, seconds: float) -> None:
    """Set the read and write timeout of a socket, in the kernel where that is possible.

    `settimeout` costs a system call for each wait, but it is the only way for TLS and for the sockets of gevent.
    """
    if (type(it).__module__, type(it).__name__) == ("socket", "socket"):
        with contextlib.suppress(OSError):
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                it.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6)))
            it.settimeout(None)
            return
    it.settimeout(seconds)


class ThreadConnectionPool:
    """The idle connections of a process: a thread takes one for each call. A forked child starts with none."""

    def __init__(self, pool: Any, read_timeout: float) -> None:
        self._pool = pool
        self._read_timeout = read_timeout
        self._idle: deque[ThreadConnection] = deque()
        self._pid = os.getpid()

    def call(
        self, commands: bytes, count: int = 1, *, timeout: float | None = None, check: bool = True
    ) -> list[Any]:  # fmt: skip
        """Send commands on an idle connection and return their answers, errors among them.

        `timeout` is that of an answer, if it is shorter than the one of the connections. `check` spends a system call
        to see that the server has not closed the connection; without it the commands must be such that they can be
        sent again. All idle connections are closed if an answer shows that the server is no primary.
        """
        seconds = self._read_timeout if timeout is None or timeout > self._read_timeout else timeout
        connection = self._take(check, seconds)
        try:
            answers = connection.call(commands, count, seconds)
        except BaseException as error:
            connection.close()
            if isinstance(error, OSError):
                raise NoAnswer(str(error) or type(error).__name__) from error
            raise
        self._idle.append(connection)
        for answer in answers:
            if isinstance(answer, NOT_PRIMARY):
                self.close()
                break
        return answers

    def _take(self, check: bool, timeout: float) -> ThreadConnection:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._idle = deque()
        while (connection := self._pop()) is not None:
            if not check or not connection.stale:
                return connection
            connection.close()
        made = self._pool.make_connection()
        made.socket_connect_timeout = made.socket_timeout = min(CONNECT_TIMEOUT, timeout)
        made.connect()
        return ThreadConnection(made, timeout)

    def _pop(self) -> ThreadConnection | None:
        try:
            return self._idle.pop()
        except IndexError:  # other threads take them too
            return None

    def close(self) -> None:
        while (connection := self._pop()) is not None:
            connection.close()
