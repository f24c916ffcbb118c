"""The same hot path without an event loop: one connection for one thread at a time."""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections import deque
from struct import Struct
from typing import Any

from redis.exceptions import ConnectionError, RedisError

from penstock.storage.redis.pipeline import DEPOSED, MORE, new_reader

__all__ = ["BlockingWires"]

#: A time as the system reads it.
_TIMEVAL = Struct("@ll")


class BlockingWire:
    """One connection for one thread at a time."""

    def __init__(self, connection: Any, silence: float) -> None:
        self._connection = connection
        self._socket = connection._sock
        _set_silence(self._socket, silence)
        self._reader = new_reader()
        self._poll = select.poll()
        self._poll.register(self._socket, select.POLLIN)

    @property
    def stale(self) -> bool:
        """Whether there is something to read though nothing was asked: the server has hung up."""
        return bool(self._poll.poll(0))

    def call(self, commands: bytes, count: int = 1) -> list[Any]:
        """Send commands and wait for their answers, errors among them."""
        reader, answers = self._reader, list[Any]()
        self._socket.sendall(commands)
        while True:
            answer = reader.gets()
            if answer is not MORE:
                answers.append(answer)
                if len(answers) == count:
                    return answers
                continue
            reader.feed(self._read())

    def call_once(self, command: bytes) -> Any:
        """As `call`, for one command."""
        reader = self._reader
        self._socket.sendall(command)
        reader.feed(self._read())
        while (answer := reader.gets()) is MORE:
            reader.feed(self._read())
        return answer

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(65536)
        except BlockingIOError:
            raise OSError("timed out") from None
        if not data:
            raise ConnectionError("the server closed the connection")
        return data

    def close(self) -> None:
        self._connection.disconnect()


def _set_silence(it: Any, seconds: float) -> None:
    """Bound how long a socket waits. The system does that without a call of its own for each wait, if it can.

    It cannot for TLS, nor for what gevent and the like put in the place of a socket.
    """
    if (type(it).__module__, type(it).__name__) == ("socket", "socket"):
        with contextlib.suppress(OSError):
            for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
                it.setsockopt(socket.SOL_SOCKET, option, _TIMEVAL.pack(int(seconds), int(seconds % 1 * 1e6)))
            it.settimeout(None)
            return
    it.settimeout(seconds)


class BlockingWires:
    """The idle connections of a process; each thread takes one and puts it back. A fork has none of them."""

    def __init__(self, pool: Any, silence: float) -> None:
        self._pool = pool
        self._silence = silence
        self._idle: deque[BlockingWire] = deque()
        self._pid = os.getpid()

    def call(self, commands: bytes, count: int = 1) -> list[Any]:
        """As `BlockingWire.call`, on a connection that is free. If it leads to no primary, all of them are closed."""
        wire = self._take()
        try:
            answers = wire.call(commands, count)
        except BaseException as error:
            wire.close()
            if isinstance(error, OSError) and not isinstance(error, RedisError):
                raise ConnectionError(str(error) or type(error).__name__) from error
            raise
        self._idle.append(wire)
        if any(isinstance(answer, DEPOSED) for answer in answers):
            self.close()
        return answers

    def call_once(self, command: bytes) -> Any:
        """The answer to a command that may be repeated: it is not asked before whether the server has hung up."""
        wire = self._pop() if self._pid == os.getpid() else None
        if wire is None:
            return self.call(command)[0]
        try:
            answer = wire.call_once(command)
        except BaseException:
            wire.close()
            raise
        self._idle.append(wire)
        if isinstance(answer, DEPOSED):
            self.close()
        return answer

    def _take(self) -> BlockingWire:
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._idle = deque()
        while (wire := self._pop()) is not None:
            if not wire.stale:
                return wire
            wire.close()
        connection = self._pool.make_connection()
        connection.connect()
        return BlockingWire(connection, self._silence)

    def _pop(self) -> BlockingWire | None:
        try:
            return self._idle.pop()
        except IndexError:  # other threads take them too
            return None

    def close(self) -> None:
        while (wire := self._pop()) is not None:
            wire.close()
