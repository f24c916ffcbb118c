"""The writer thread: verbs submitted since the last commit go into the next transaction together."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from penstock.errors import StorageError
from penstock.storage.sqlite.engine import BUSY_TIMEOUT, Engine
from penstock.storage.sqlite.file_errors import locked
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["Submit", "Writer"]

#: Verbs that one transaction runs at most.
MAX_GROUP = 500

#: While the file is locked, the writer looks this often (s) for requests that have waited long enough.
BUSY_SLICE = 0.1

T = TypeVar("T")

Future = asyncio.Future[Any]
#: A verb, whether it writes, the future of its answer, when it was submitted, and its longest wait for the lock (s).
Request = tuple[Callable[[Transaction], Any], bool, Future, float, float]


class Submit(Protocol):
    """A function that submits a verb: `SqliteStorage` passes it on to its writer."""

    def __call__(self, verb: Callable[[Transaction], T], write: bool) -> Awaitable[T]: ...


class Writer:
    """One thread that runs verbs for event loops, many to a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests: SimpleQueue[Request | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="penstock-sqlite", daemon=True)
        self._thread.start()

    def submit(self, verb: Callable[[Transaction], Any], write: bool, within: float = BUSY_TIMEOUT) -> Future:
        """Queue a verb and return a future that is resolved after the commit.

        It raises `StorageUnavailable` if another process has locked the file for these seconds.
        """
        if self._closed:
            raise StorageError("the storage is closed")
        future: Future = asyncio.get_running_loop().create_future()
        self._requests.put((verb, write, future, time.monotonic(), within))
        return future

    def close(self) -> None:
        """Run the verbs submitted so far, then end the thread."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        closing, waiting = False, list[Request]()
        while waiting or not closing:
            group: list[Request | None] = [*waiting]
            if not group:
                group.append(self._requests.get())
            with contextlib.suppress(Empty):
                while len(group) < MAX_GROUP:
                    group.append(self._requests.get_nowait())
            requests = [request for request in group if request is not None and not request[2].cancelled()]
            closing = closing or None in group
            waiting = self._run(requests) if requests else []

    def _run(self, requests: list[Request]) -> list[Request]:
        """Run verbs and resolve their futures; returns the requests that wait on, because the file is locked."""
        answers: Sequence[Any] | None
        try:
            answers = self._engine.run_group(
                [(verb, write) for verb, write, _, _, _ in requests], time.monotonic() + BUSY_SLICE
            )
        except BaseException as error:  # any error, or the callers would wait forever
            answers = [error] * len(requests)
        waiting: list[Request] = []
        if answers is None:
            now = time.monotonic()
            waiting = [request for request in requests if now < request[3] + request[4]]
            requests = [request for request in requests if now >= request[3] + request[4]]
            answers = [locked(self._engine.path, request[4]) for request in requests]
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Future, Any]]] = {}
        for (_, _, future, _, _), answer in zip(requests, answers, strict=True):
            loops.setdefault(future.get_loop(), []).append((future, answer))
        for loop, pairs in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its callers with it
                loop.call_soon_threadsafe(_resolve, pairs)
        return waiting


def _resolve(pairs: list[tuple[Future, Any]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
