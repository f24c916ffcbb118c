"""Pipelined connections: the commands of all callers of a process on one socket, answered in order.

redis-py makes the connection (address, TLS, login, Sentinel) and then leaves its socket to this module. Its own
clients would take a connection and two system calls for each caller.
"""

from __future__ import annotations

import asyncio
import math
import time
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

__all__ = [
    "MORE",
    "NOT_PRIMARY",
    "NoAnswer",
    "NoReplicasError",
    "Pipeline",
    "RawConnection",
    "cancellable",
    "new_reader",
    "pack_command",
]

T = TypeVar("T")

#: A command of more bytes is written at once instead of being joined with later ones.
_LARGE = 2048

#: The reader's result while an answer is incomplete.
MORE: Any = object()


class NoAnswer(ConnectionError):
    """Error of a command that was sent and got no answer: the server may have run it."""


class NoReplicasError(ResponseError):
    """Error of a primary with fewer replicas than it needs for writes; there may be a new primary."""


_ERRORS: dict[str, type[RedisError]] = {
    "NOSCRIPT": NoScriptError, "READONLY": ReadOnlyError, "LOADING": BusyLoadingError, "OOM": OutOfMemoryError,
    "MASTERDOWN": MasterDownError, "NOAUTH": AuthenticationError, "WRONGPASS": AuthenticationError,
    "NOPERM": NoPermissionError, "NOREPLICAS": NoReplicasError,
}  # fmt: skip

#: Errors of a server that is no primary, or may not be one for long: the client must find the primary again.
NOT_PRIMARY = (ReadOnlyError, MasterDownError, NoReplicasError)


def _error(text: str) -> Exception:
    code, _, rest = text.partition(" ")
    kind = _ERRORS.get(code)
    return ResponseError(text) if kind is None else kind(rest)


def new_reader() -> Reader:
    """Make a parser of answers: errors come as exceptions, `MORE` if no answer is complete."""
    return Reader(replyError=_error, notEnoughData=MORE)


_pack: Any = getattr(hiredis, "pack_command")  # noqa: B009 - typed as taking one argument only


def pack_command(*args: Any) -> bytes:
    """Encode a command in the protocol of the server (RESP)."""
    return _pack(args)


async def cancellable(work: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine of redis-py, which may swallow a cancellation (as `asyncio.wait_for` before Python 3.12).

    It is cancelled again until it has ended, so that it does not go on in the background. A write to a connection
    that the server has closed raises `ConnectionError` on every event loop: that of uvloop raises `RuntimeError`.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except RuntimeError as error:
        if "the handler is closed" not in str(error):
            raise
        raise ConnectionError("the server closed the connection") from error
    except asyncio.CancelledError:
        while not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
        raise


class RawConnection(asyncio.Protocol):
    """A connection that redis-py made, and whose transport this object owns from then on."""

    def __init__(self, connection: Any) -> None:
        # Kept alive: redis-py and the streams close the transport when they are collected as garbage.
        self._streams = connection._reader, connection._writer
        connection._reader = connection._writer = None
        self._transport: asyncio.Transport = self._streams[1].transport
        self._stream_protocol: Any = self._transport.get_protocol()
        self._transport.set_protocol(self)
        self._loop = asyncio.get_running_loop()
        self._reader = new_reader()

    @classmethod
    async def connected(cls, pool: Any) -> Any:
        """Make a redis-py connection with the settings of this redis-py pool."""
        connection = pool.make_connection()
        try:
            await cancellable(connection.connect())
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    def connection_lost(self, exc: Exception | None) -> None:
        self._stream_protocol.connection_lost(exc)

    def _answers(self, data: bytes) -> Iterator[Any]:
        """Yield the answers that are complete, errors as exceptions."""
        reader = self._reader
        reader.feed(data)
        while (answer := reader.gets()) is not MORE:
            yield answer


class Pipeline(RawConnection):
    """One connection for any number of concurrent callers."""

    def __init__(self, connection: Any, read_timeout: float) -> None:
        super().__init__(connection)
        self._out: list[bytes] = []
        self._flush_scheduled = False
        #: The futures of the commands under way; of each the time at which this connection is given up, and the time at
        #: which only its caller gives up, if that has a bound.
        self._waiting: deque[tuple[asyncio.Future[Any] | _Answers, float, float | None]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._check_at = math.inf
        self._read_timeout = read_timeout
        self._lost: BaseException | None = None
        self._not_primary = False
        #: The id of this connection on the server (CLIENT ID), if it was asked for.
        self.client_id: int | None = None

    @classmethod
    async def open(cls, pool: Any, read_timeout: float) -> Pipeline:
        """Connect with the settings of this redis-py pool; close when an answer takes longer than the timeout (s)."""
        return cls(await cls.connected(pool), read_timeout)

    @property
    def alive(self) -> bool:
        """Whether it can be used: its event loop runs, and it leads to a primary."""
        return not (self._not_primary or self._lost or self._loop.is_closed() or self._transport.is_closing())

    @property
    def answers(self) -> bool:
        """Whether answers may still come."""
        return self._lost is None and not self._loop.is_closed() and not self._transport.is_closing()

    def send(
        self, command: bytes, deadline: float | None = None, *, no_timeout: bool = False
    ) -> asyncio.Future[Any]:  # fmt: skip
        """Send a command and return the future of its answer; `no_timeout` is for commands that block.

        At the deadline (of `time.monotonic`) the future raises `NoAnswer`; the connection stays open.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._lost is not None:
            future.set_exception(ConnectionError(f"the connection is closed: {self._lost}"))
            return future
        if self._flush_scheduled:
            self._out.append(command)
            if len(command) > _LARGE:
                self._write_out()
        else:  # the first command in a turn of the loop is written at once, the others together
            if self._waiting:
                self._flush_scheduled = True
                self._loop.call_soon(self._flush)
            self._transport.write(command)
        limit = math.inf if no_timeout else time.monotonic() + self._read_timeout
        self._waiting.append((future, limit, deadline))
        check = limit if deadline is None or limit < deadline else deadline
        if check < self._check_at:
            self._set_timer(check)
        return future

    async def answers_of(
        self, commands: list[bytes], on_answers: Callable[[list[Any]], None] | None = None
    ) -> list[Any]:  # fmt: skip
        """Send commands that may block in one write; return their answers, errors among them.

        `on_answers` is called with the answers as soon as they are complete. Callbacks that it schedules run before
        the awaiting caller resumes.
        """
        if self._lost is not None:
            raise ConnectionError(f"the connection is closed: {self._lost}")
        self._transport.write(b"".join(commands))
        answers = _Answers(self._loop.create_future(), len(commands), on_answers)
        self._waiting.extend([(answers, math.inf, None)] * len(commands))
        return await answers.complete

    def close(self, why: BaseException | None = None) -> None:
        """Close the connection; callers that wait for an answer get an error. Idempotent."""
        self._fail_waiting(why or ConnectionError("closed"))
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        reader, waiting = self._reader, self._waiting
        reader.feed(data)
        try:
            while (answer := reader.gets()) is not MORE:
                future, _, _ = waiting.popleft()
                if isinstance(answer, Exception):
                    self._not_primary = self._not_primary or isinstance(answer, NOT_PRIMARY)
                if not future.done():  # a caller may have been cancelled
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        except Exception as error:  # bytes that are no answer, or an answer without a question
            self.close(error)
        if self._not_primary and not waiting:  # all commands that were under way are answered
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail_waiting(exc or ConnectionError("the server closed the connection"))
        super().connection_lost(exc)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._out:
            self._write_out()

    def _write_out(self) -> None:
        out, self._out = self._out, []
        if self._lost is None:
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._check_at = at
        self._timer = self._loop.call_later(at - time.monotonic(), self._check_timeouts)

    def _check_timeouts(self) -> None:
        """Close the connection if its oldest command is overdue, and fail callers whose deadline is over.

        One timer serves all callers. While answers come, it is set again every few seconds.
        """
        self._check_at, self._timer = math.inf, None
        if not self._waiting or self._lost is not None:
            return
        now, first = time.monotonic(), self._waiting[0][1]
        if first <= now:
            return self.close(TimeoutError(f"no answer for {self._read_timeout:g} s"))
        for future, _, deadline in self._waiting:
            if deadline is None or future.done():
                continue
            if deadline <= now:
                future.set_exception(NoAnswer("no answer in time"))
                future.exception()  # marks it as retrieved: the caller may have been cancelled
            elif deadline < first:
                first = deadline
        if first < math.inf:
            self._set_timer(first)

    def _fail_waiting(self, error: BaseException) -> None:
        if self._lost is not None:
            return
        self._lost = error
        if self._timer is not None:
            self._timer.cancel()
        text = str(error) if isinstance(error, RedisError) else f"the connection broke: {error}"
        while self._waiting:
            future, _, _ = self._waiting.popleft()
            if not future.done():
                future.set_exception(NoAnswer(text))
                future.exception()  # marks it as retrieved: the caller may have been cancelled


class _Answers:
    """Collector of the answers to several commands, with the methods of a future that `Pipeline` calls."""

    def __init__(
        self, complete: asyncio.Future[list[Any]], count: int, on_answers: Callable[[list[Any]], None] | None
    ) -> None:  # fmt: skip
        self.complete = complete
        self._count = count
        self._on_answers = on_answers
        self._answers: list[Any] = []

    def done(self) -> bool:
        return self.complete.done()

    def set_result(self, answer: Any) -> None:
        self._answers.append(answer)
        if len(self._answers) < self._count:
            return
        try:
            if self._on_answers is not None:
                self._on_answers(self._answers)
                self.complete.get_loop().call_soon(self._finish)
            else:
                self._finish()
        except Exception as error:
            self.complete.set_exception(error)

    def _finish(self) -> None:
        if not self.complete.done():  # the connection may have broken, or the caller may have been cancelled
            self.complete.set_result(self._answers)

    def set_exception(self, error: BaseException) -> None:
        if isinstance(error, ResponseError):
            self.set_result(error)
        else:
            self.complete.set_exception(error)

    def exception(self) -> BaseException | None:
        return self.complete.exception()
