"""A connection to the Redis server of a simulated run that subscribes to channels and sends commands.

With protocol 3 one connection does both: all messages that were published before a command come before its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from redis import Redis

from penstock.errors import StorageUnavailable

__all__ = ["MessageConnection"]

#: How long (seconds of real time) the server may take to answer.
ANSWER = 30.0


class MessageConnection:
    """Sends commands, and calls `received` with channel and bytes of each message of the channels of a pattern."""

    def __init__(self, url: str, pattern: str, received: Callable[[str, bytes], None]) -> None:
        from penstock.storage.redis.pipeline import MORE, new_reader, pack_command

        connect_to: Any = Redis
        self._client: Any = connect_to.from_url(url, protocol=3)
        self._connection: Any = self._client.connection_pool.make_connection()
        self._connection.connect()
        self._socket: Any = self._connection._sock
        self._socket.settimeout(ANSWER)
        self._reader, self._more = new_reader(), MORE
        #: Encodes a command.
        self.pack: Callable[..., bytes] = pack_command
        self._received = received
        self._socket.sendall(self.pack("PSUBSCRIBE", pattern))
        self.ask(self.pack("PING"))

    def send(self, *command: Any) -> Any:
        """Send one command and return its answer."""
        return self.ask(self.pack(*command))[0]

    def ask(self, commands: bytes, count: int = 1) -> list[Any]:
        """Send commands that are encoded already, and return their answers."""
        reader, more, answers = self._reader, self._more, list[Any]()
        self._socket.sendall(commands)
        while len(answers) < count:
            data = self._socket.recv(65536)
            if not data:
                raise StorageUnavailable("the Redis server of the simulation closed the connection")
            reader.feed(data)
            while (answer := reader.gets()) is not more:
                if type(answer) is list or not isinstance(answer, list):
                    answers.append(answer)
                    continue
                kind, _, *message = cast("list[Any]", answer)  # a push has a type of its own, derived from list
                if kind == b"pmessage":
                    self._received(message[0].decode(), message[1])
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    def close(self) -> None:
        """Close the connection."""
        self._connection.disconnect()
        self._client.close()
