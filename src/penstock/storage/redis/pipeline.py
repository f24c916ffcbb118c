"""The hot path: commands of all callers of a process on one connection, written together, answered in order.

redis-py makes the connection (address, TLS, login, Sentinel) and then leaves its socket to us: it
would take a connection and two system calls for each caller.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

import hiredis
from hiredis import Reader
from redis.exceptions import (
    AuthenticationError,
    BusyLoadingError,
    ConnectionError,
    MasterDownError,
    NoPermissionError,
    NoScriptError,
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,
)

__all__ = ["DEPOSED", "MORE", "Line", "NoReplicasError", "Wire", "cancellable", "new_reader", "pack_command"]

T = TypeVar("T")

#: A command of so many bytes does not wait for others to go with it.
_LARGE = 2048

#: What the reader says when an answer is not complete yet.
MORE: Any = object()


class NoReplicasError(ResponseError):
    """A primary has fewer replicas than it needs to take writes; maybe others have gone over to a new primary."""


_ERRORS: dict[str, type[RedisError]] = {
    "NOSCRIPT": NoScriptError, "READONLY": ReadOnlyError, "LOADING": BusyLoadingError, "OOM": OutOfMemoryError,
    "MASTERDOWN": MasterDownError, "NOAUTH": AuthenticationError, "WRONGPASS": AuthenticationError,
    "NOPERM": NoPermissionError, "NOREPLICAS": NoReplicasError,
}  # fmt: skip

#: Answers of a server that is no primary, or perhaps not for long: who is must be asked for anew.
DEPOSED = (ReadOnlyError, MasterDownError, NoReplicasError)


def _error(text: str) -> Exception:
    word, _, rest = text.partition(" ")
    kind = _ERRORS.get(word)
    return ResponseError(text) if kind is None else kind(rest)


def new_reader() -> Reader:
    """What reads answers; errors come as exceptions, `MORE` when there is none yet."""
    return Reader(replyError=_error, notEnoughData=MORE)


_pack: Any = getattr(hiredis, "pack_command")  # noqa: B009 - typed as taking one argument only


def pack_command(*args: Any) -> bytes:
    """A command as the server reads it."""
    return _pack(args)


async def cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Do something of redis-py's, which may swallow a cancellation (as `asyncio.wait_for` does before Python 3.12).

    It is told again until it has ended, so that nothing of it goes on behind our back.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
        raise


class Line(asyncio.Protocol):
    """A connection that redis-py made, and that is ours from then on."""

    def __init__(self, connection: Any) -> None:
        # What redis-py and the streams would close when nobody refers to them.
        self._streams = connection._reader, connection._writer
        connection._reader = connection._writer = None
        self._transport: asyncio.Transport = self._streams[1].transport
        self._before: Any = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._reader = new_reader()

    @classmethod
    async def connected(cls, pool: Any) -> Any:
        """A connection as the clients of this redis-py pool have them."""
        connection = pool.make_connection()
        try:
            await cancellable(connection.connect())
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._before.connection_lost(exc)

    def _answers(self, data: bytes) -> Iterator[Any]:
        """What has come in whole, errors as exceptions."""
        reader = self._reader
        reader.feed(data)
        while (answer := reader.gets()) is not MORE:
            yield answer


class Wire(Line):
    """One connection for any number of callers at once."""

    def __init__(self, connection: Any, silence: float) -> None:
        super().__init__(connection)
        self._out: list[bytes] = []
        self._flushing = False
        self._waiting: deque[tuple[asyncio.Future[Any] | _Answers, float]] = deque()
        self._watched = False
        self._silence = silence
        self._lost: BaseException | None = None
        self._deposed = False
        #: The number by which the server knows it, if that is known.
        self.number: int | None = None

    @classmethod
    async def open(cls, pool: Any, silence: float) -> Wire:
        """Connect as the clients of this redis-py pool do. A server that is silent for so long (s) is given up."""
        return cls(await cls.connected(pool), silence)

    @property
    def alive(self) -> bool:
        """Whether it can be used: not when its event loop has ended, nor when it leads to no primary."""
        return not (self._deposed or self._lost or self._loop.is_closed() or self._transport.is_closing())

    @property
    def answers(self) -> bool:
        """Whether answers may still come."""
        return self._lost is None and not self._loop.is_closed() and not self._transport.is_closing()

    def send(self, command: bytes, *, patient: bool = False) -> asyncio.Future[Any]:
        """Send a command; `patient` sets no bound to the wait for its answer."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(ConnectionError(f"the connection is closed: {self._lost}"))
            return future
        if self._flushing:
            self._out.append(command)
            if len(command) > _LARGE:
                self._write_out()
        else:  # the first of this turn goes at once, the others together
            if self._waiting:
                self._flushing = True
                self._loop.call_soon(self._flush)
            self._transport.write(command)
        self._waiting.append((future, self._loop.time()))
        if not self._watched and not patient:
            self._watched = True
            self._loop.call_later(self._silence, self._watch)
        return future

    async def answers_of(
        self, commands: list[bytes], hear: Callable[[list[Any]], None] | None = None
    ) -> list[Any]:  # fmt: skip
        """The answers, errors among them, of commands that may block, written together.

        `hear` has them at once, and what it sets going has its turn before the caller.
        """
        if self._lost is not None:
            raise ConnectionError(f"the connection is closed: {self._lost}")
        self._transport.write(b"".join(commands))
        answers = _Answers(self._loop.create_future(), len(commands), hear)
        self._waiting.extend([(answers, self._loop.time())] * len(commands))
        return await answers.whole

    def close(self, why: BaseException | None = None) -> None:
        """Hang up; who still waits for an answer gets an error. Idempotent."""
        self._give_up(why or ConnectionError("closed"))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not MORE:
                future, _ = waiting.popleft()
                if isinstance(answer, Exception):
                    self._deposed = self._deposed or isinstance(answer, DEPOSED)
                if not future.done():  # a caller may have gone away
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        except Exception as error:  # bytes that are no answer, or an answer that nobody asked for
            self.close(error)
        if self._deposed and not waiting:  # those who were on their way have their answers
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._give_up(exc or ConnectionError("the server closed the connection"))
        super().connection_lost(exc)

    def _flush(self) -> None:
        self._flushing = False
        if self._out:
            self._write_out()

    def _write_out(self) -> None:
        out, self._out = self._out, []
        if self._lost is None:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def _watch(self) -> None:
        """One timer for all callers: a server that does not answer the oldest of them is gone."""
        self._watched = False
        if self._waiting and self._lost is None:
            left = self._waiting[0][1] + self._silence - self._loop.time()
            if left <= 0:
                self.close(TimeoutError(f"no answer for {self._silence:g} s"))
            else:
                self._watched = True
                self._loop.call_later(left, self._watch)

    def _give_up(self, error: BaseException) -> None:
        if self._lost is None:
            self._lost = error
            while self._waiting:
                future, _ = self._waiting.popleft()
                if not future.done():
                    cause = (
                        error if isinstance(error, RedisError) else ConnectionError(f"the connection broke: {error}")
                    )
                    future.set_exception(cause)
                    future.exception()  # whoever was waiting may be gone: do not complain then


class _Answers:
    """Takes the answers to several commands, one after the other, as a future takes one."""

    def __init__(
        self, whole: asyncio.Future[list[Any]], count: int, hear: Callable[[list[Any]], None] | None
    ) -> None:  # fmt: skip
        self.whole = whole
        self._count = count
        self._hear = hear
        self._answers: list[Any] = []

    def done(self) -> bool:
        return self.whole.done()

    def set_result(self, answer: Any) -> None:
        self._answers.append(answer)
        if len(self._answers) < self._count:
            return
        try:
            if self._hear is not None:
                self._hear(self._answers)
                self.whole.get_loop().call_soon(self._tell)
            else:
                self._tell()
        except Exception as error:
            self.whole.set_exception(error)

    def _tell(self) -> None:
        if not self.whole.done():  # the connection may have broken, or the caller gone away
            self.whole.set_result(self._answers)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, ResponseError):
            self.set_result(error)
        else:
            self.whole.set_exception(error)

    def exception(self) -> BaseException | None:
        return self.whole.exception()
