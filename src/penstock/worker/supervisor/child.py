"""A child process: it claims, runs and settles by itself; its parent keeps its leases and its time."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import logging
import math
import os
import signal
import socket
import sys
from collections.abc import Coroutine
from multiprocessing import forkserver
from typing import Any, TypeVar

from penstock.app_loader import load_all, one_line
from penstock.errors import StorageUnavailable
from penstock.host import Host
from penstock.log_config import configure
from penstock.model.handler import Handler
from penstock.worker.handlers import select_handlers, share_of
from penstock.worker.supervisor.channel import Line
from penstock.worker.supervisor.child_runtime import ChildShift
from penstock.worker.supervisor.claim_table import Board
from penstock.worker.supervisor.config import Settings
from penstock.worker.supervisor.storage_match import place_of, why_unseen

__all__ = ["main", "run"]


T = TypeVar("T")

log = logging.getLogger("penstock.worker")

PR_SET_PDEATHSIG = 1


def main(settings: Settings, board: Board, end: socket.socket) -> None:
    """What a child process does, from its start to its end."""
    settle_in()
    os.environ.clear()
    os.environ.update(settings.environment)
    if settings.log_level is not None:
        configure(settings.log_level)
    try:
        app = load_all(settings.source, settings.modules, settings.serves)
        handlers = select_handlers(app, settings.queues, settings.capacity)
    except Exception as error:
        log.debug("the app cannot be loaded", exc_info=True)
        end.sendall(f"failed {one_line(error)}\n".encode())
        return
    run(Child(settings, board, app, share_of(handlers, settings.seat, settings.seats)).work(end))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop where it is installed."""
    gc.collect()
    gc.freeze()  # modules and what they made stay: a look at all of them would hold up runs for milliseconds
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    finally:
        gc.unfreeze()  # what wants to do something at the end is to be found


def settle_in() -> None:
    """Signals to the group are the parent's to act on; and no child outlives its parent."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do_nothing)  # not SIG_IGN: programs that handlers start would inherit that
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is None or not sys.platform.startswith("linux"):
        return
    # The server that forked us ends when nobody holds this pipe any more; we must not be the ones to hold it.
    with contextlib.suppress(OSError):
        os.close(alive)
    server._forkserver_alive_fd = None
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def do_nothing(number: int, frame: object) -> None:
    """A signal that somebody else acts on."""


class Child:
    """One child's life: open, say so, work until told to stop."""

    def __init__(self, settings: Settings, board: Board, app: Host, handlers: dict[str, Handler]) -> None:
        self._settings = settings
        self._board = board
        self._app = app
        self._handlers = handlers
        self._stop = asyncio.Event()
        self._hurried = False
        self._line: Line | None = None
        self._shift: ChildShift | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def work(self, end: socket.socket) -> None:
        line = self._line = Line(end, self._heard, lambda: os._exit(1))
        if await self._open(line):
            shift = self._shift = ChildShift(self._app, self._settings, self._handlers, self._board, line.say)
            if self._settings.drain:
                await shift.drain(self._settings.scheduled)
            else:
                await shift.start()
            line.say("ready")
            await self._stop.wait()
            if self._hurried:
                shift.hurry.set()
            await shift.finish()
        await self._app.close()
        line.say("bye")
        line.close()

    async def _open(self, line: Line) -> bool:
        """Open the storage, however long it takes, and see that the parent is there too."""
        now = asyncio.get_running_loop().time
        rest, unseen = 0.1, math.inf
        while not self._stop.is_set():
            try:
                await self._app.open()
                if self._settings.worker in [record.id for record in await self._app.storage.workers()]:
                    return True
                unseen = min(unseen, now())
                why = why_unseen(self._settings.place, place_of(self._app.storage), now() - unseen)
                if why is not None:
                    line.say(f"failed {why}")
                    return False
                line.say("unseen")
            except StorageUnavailable as error:
                unseen = math.inf
                log.debug("the storage cannot be reached yet: %s", error)
            except Exception as error:
                line.say(f"failed {one_line(error)}")
                return False
            await asyncio.sleep(rest)
            rest = min(rest * 2, 5.0 if unseen == math.inf else 1.0)
        return False

    def _heard(self, words: str) -> None:
        if words in ("stop", "hurry"):
            if self._line is not None:
                self._line.say("stopping")
            self._stop.set()
        if words == "hurry":
            self._hurried = True
            if self._shift is not None:
                self._shift.hurry.set()
        elif words == "look" and self._shift is not None:
            self._shift.look()
        elif words == "again" and self._shift is not None:
            self._shift.again()
        elif words == "take over":
            self._settings = dataclasses.replace(self._settings, beside=False)
            if self._shift is not None:
                self._shift.take_over()
        elif words == "release" and self._shift is not None:
            task = asyncio.ensure_future(self._shift.release())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
