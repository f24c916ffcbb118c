"""The writer thread: everything asked since the last commit goes into the next transaction."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

from penstock.errors import StorageError
from penstock.storage.sqlite.engine import Engine
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["Writer"]

#: One transaction holds at most so many verbs.
MAX_GROUP = 500

Future = asyncio.Future[Any]


class Writer:
    """One thread that runs verbs for event loops, many to a transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._requests: SimpleQueue[tuple[Callable[[Transaction], Any], bool, Future] | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._loop, name="penstock-sqlite", daemon=True)
        self._thread.start()

    def submit(self, verb: Callable[[Transaction], Any], write: bool) -> Future:
        """Ask for a verb; the future is resolved after the commit."""
        if self._closed:
            raise StorageError("the storage is closed")
        future: Future = asyncio.get_running_loop().create_future()
        self._requests.put((verb, write, future))
        return future

    def close(self) -> None:
        """Run what was asked, then end the thread."""
        if not self._closed:
            self._closed = True
            self._requests.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _loop(self) -> None:
        ending = False
        while not ending:
            group = [self._requests.get()]
            with contextlib.suppress(Empty):
                while len(group) < MAX_GROUP:
                    group.append(self._requests.get_nowait())
            asked = [item for item in group if item is not None and not item[2].cancelled()]
            ending = None in group
            if asked:
                self._run(asked)

    def _run(self, asked: list[tuple[Callable[[Transaction], Any], bool, Future]]) -> None:
        try:
            answers = self._engine.run_group([(verb, write) for verb, write, _ in asked])
        except BaseException as error:  # whatever it is, nobody may wait for ever
            answers = [error] * len(asked)
        loops: dict[asyncio.AbstractEventLoop, list[tuple[Future, Any]]] = {}
        for (_, _, future), answer in zip(asked, answers, strict=True):
            loops.setdefault(future.get_loop(), []).append((future, answer))
        for loop, pairs in loops.items():
            with contextlib.suppress(RuntimeError):  # the loop was closed: nobody is there to hear
                loop.call_soon_threadsafe(_resolve, pairs)


def _resolve(pairs: list[tuple[Future, Any]]) -> None:
    for future, answer in pairs:
        if future.done():
            continue
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)
