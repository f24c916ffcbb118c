"""Subscription to one channel: delivers its messages as they arrive."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError, TimeoutError

from penstock.storage.redis.clients import CONNECT_TIMEOUT
from penstock.storage.redis.pipeline import RawConnection, pack_command

__all__ = ["Subscription"]

#: After this many seconds without a message the server gets a PING.
_PING_AFTER = 7.5
#: About how many messages, and bytes of them, wait for a slow reader; the others wait in the sockets.
_MAX_UNREAD, _MAX_UNREAD_BYTES = 1000, 4_000_000


class Subscription(RawConnection):
    """One channel on a connection of its own; an error of the connection ends it."""

    def __init__(
        self, connection: Any, channel: str, read_timeout: float, on_message: Callable[[bytes], None] | None
    ) -> None:
        super().__init__(connection)
        self._read_timeout = read_timeout
        self._on_message = on_message
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._waiter: asyncio.Future[None] | None = None
        self._confirmed: asyncio.Future[None] = self._loop.create_future()
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._closed.add_done_callback(lambda closed: closed.exception())  # marks it as retrieved
        self._pinged = self._quiet = self._paused = False
        self._transport.write(pack_command("SUBSCRIBE", channel))
        self._timer = self._loop.call_later(min(CONNECT_TIMEOUT, read_timeout), self._time_out)

    @classmethod
    async def open(
        cls, pool: Any, channel: str, read_timeout: float, on_message: Callable[[bytes], None] | None = None
    ) -> Subscription:
        """Subscribe and wait for the confirmation; with `on_message` each message goes there as it arrives."""
        subscription = cls(await cls.connected(pool), channel, read_timeout, on_message)
        try:
            await subscription._confirmed
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def next_message(self) -> bytes:
        """Wait for the next message, if there is no `on_message`; raises when the connection has ended."""
        while not self._unread:
            if self._closed.done():
                return self._closed.result()  # type: ignore[return-value] # it always raises
            self._waiter = self._loop.create_future()
            await self._waiter
        message = self._unread.popleft()
        self._unread_bytes -= len(message)
        if self._paused and len(self._unread) < _MAX_UNREAD // 2 and self._unread_bytes < _MAX_UNREAD_BYTES // 2:
            self._paused = False
            self._transport.resume_reading()
        return message

    async def wait_closed(self) -> None:
        """Wait for the end of the connection and raise its error."""
        await asyncio.shield(self._closed)

    def close(self, why: Exception | None = None) -> None:
        """Close the connection. Idempotent."""
        self._end(why or ConnectionError("closed"))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._pinged = self._quiet = False
        try:
            for answer in self._answers(data):
                if isinstance(answer, Exception):
                    raise answer
                if answer[0] == b"message":
                    self._receive(answer[2])
                elif not self._confirmed.done() and answer[0] == b"subscribe":
                    self._confirmed.set_result(None)
                    self._timer.cancel()
                    self._timer = self._loop.call_later(min(_PING_AFTER, self._read_timeout), self._check)
        except Exception as error:  # a refusal, or bytes that are no answer
            self.close(error)

    def _receive(self, message: bytes) -> None:
        if self._on_message is not None:
            return self._on_message(message)
        self._unread.append(message)
        self._unread_bytes += len(message)
        if not self._paused and (len(self._unread) >= _MAX_UNREAD or self._unread_bytes >= _MAX_UNREAD_BYTES):
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))
        super().connection_lost(exc)

    def _check(self) -> None:
        """Send a PING if nothing arrived since the last check; close if nothing arrived since the PING."""
        if self._pinged:
            return self._time_out()
        if self._quiet and not self._paused:
            self._pinged = True
            self._transport.write(pack_command("PING"))
        self._quiet = True
        wait = min(CONNECT_TIMEOUT if self._pinged else _PING_AFTER, self._read_timeout)
        self._timer = self._loop.call_later(wait, self._check)

    def _time_out(self) -> None:
        self.close(TimeoutError("the server does not answer on a subscription"))

    def _end(self, error: Exception) -> None:
        self._timer.cancel()
        for future in (self._confirmed, self._closed):
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
