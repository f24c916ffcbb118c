"""A subscription: what the server says on one channel, as it comes."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from redis.exceptions import ConnectionError, TimeoutError

from penstock.storage.redis.clients import CONNECT
from penstock.storage.redis.pipeline import Line, pack_command

__all__ = ["Subscription"]

#: A server that says nothing for so long (seconds) is asked whether it is still there.
_QUIET = 7.5
#: So many words wait for a slow reader; the rest wait in the sockets.
_MOST_UNREAD = 1000


class Subscription(Line):
    """One channel on a connection of its own; an error of the connection ends it."""

    def __init__(self, connection: Any, channel: str, silence: float, hear: Callable[[bytes], None] | None) -> None:
        super().__init__(connection)
        self._silence = silence
        self._hear = hear
        self._said: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._confirmed: asyncio.Future[None] = self._loop.create_future()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._over.add_done_callback(lambda over: over.exception())  # it may be that nobody looks
        self._asked = self._quiet = self._paused = False
        self._transport.write(pack_command("SUBSCRIBE", channel))
        self._timer = self._loop.call_later(min(CONNECT, silence), self._unanswered)

    @classmethod
    async def open(
        cls, pool: Any, channel: str, silence: float, hear: Callable[[bytes], None] | None = None
    ) -> Subscription:
        """Subscribe, and see that the server has confirmed it; with `hear` every word goes there at once."""
        subscription = cls(await cls.connected(pool), channel, silence, hear)
        try:
            await subscription._confirmed
        except BaseException:
            subscription.close()
            raise
        return subscription

    async def said(self) -> bytes:
        """The next word, for who does not `hear`; raises when the connection is over."""
        while not self._said:
            if self._over.done():
                return self._over.result()  # type: ignore[return-value] # it never has one
            self._waiter = self._loop.create_future()
            await self._waiter
        word = self._said.popleft()
        if self._paused and len(self._said) < _MOST_UNREAD // 2:
            self._paused = False
            self._transport.resume_reading()
        return word

    async def over(self) -> None:
        """Wait for the end of the connection, which is raised."""
        await asyncio.shield(self._over)

    def close(self, why: Exception | None = None) -> None:
        """Hang up. Idempotent."""
        self._end(why or ConnectionError("closed"))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._asked = self._quiet = False
        try:
            for answer in self._answers(data):
                if isinstance(answer, Exception):
                    raise answer
                if answer[0] == b"message":
                    self._take(answer[2])
                elif not self._confirmed.done() and answer[0] == b"subscribe":
                    self._confirmed.set_result(None)
                    self._timer.cancel()
                    self._timer = self._loop.call_later(min(_QUIET, self._silence), self._check)
        except Exception as error:  # a refusal, or bytes that are no answer
            self.close(error)

    def _take(self, word: bytes) -> None:
        if self._hear is not None:
            return self._hear(word)
        self._said.append(word)
        if len(self._said) >= _MOST_UNREAD and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionError("the server closed the connection"))
        super().connection_lost(exc)

    def _check(self) -> None:
        """When nothing was said for long the server is asked for a word, which may be any; without one it is gone."""
        if self._asked:
            return self._unanswered()
        if self._quiet and not self._paused:
            self._asked = True
            self._transport.write(pack_command("PING"))
        self._quiet = True
        wait = min(CONNECT if self._asked else _QUIET, self._silence)
        self._timer = self._loop.call_later(wait, self._check)

    def _unanswered(self) -> None:
        self.close(TimeoutError("a subscription has gone silent"))

    def _end(self, error: Exception) -> None:
        self._timer.cancel()
        for future in (self._confirmed, self._over):
            if not future.done():
                future.set_exception(error)
                future.exception()  # it may be that nobody looks
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
