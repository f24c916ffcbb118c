"""The main function of a child process, and its life: import the app, open it, work until the supervisor stops it."""

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
from typing import Any, NoReturn, TypeVar

from penstock.app_loader import load_all, one_line
from penstock.errors import StorageUnavailable
from penstock.host import AppHost
from penstock.log_config import configure
from penstock.model.handler import Handler
from penstock.model.printing import escape_controls
from penstock.worker.handlers import select_handlers, share_of
from penstock.worker.supervisor.channel import Channel, FromChild, ToChild
from penstock.worker.supervisor.child_runtime import ChildRuntime
from penstock.worker.supervisor.claim_table import ClaimTable
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.storage_match import location_of, why_parent_is_missing

__all__ = ["main", "run"]


T = TypeVar("T")

log = logging.getLogger("penstock.worker")

PR_SET_PDEATHSIG = 1


def main(config: ChildConfig, table: ClaimTable, end: socket.socket) -> None:
    """Run a child process from its start to its end."""
    bind_to_parent()
    table.write_stacks_on_request()
    os.environ.clear()
    os.environ.update(config.environment)
    if config.log_level is not None:
        configure(config.log_level, tracebacks=config.log_tracebacks, log_format=config.log_format)
    try:
        app = load_all(config.source, config.modules, config.serves)
        handlers = select_handlers(app, config.queues, config.capacity)
    except Exception as error:
        log.debug("the app cannot be loaded", exc_info=True)
        end.sendall(f"{FromChild.FAILED}{one_line(error)}\n".encode())
        return
    run(Child(config, table, app, share_of(handlers, config.slot, config.slots)).work(end))


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end, on uvloop where that is installed; returns its value."""
    gc.collect()
    gc.freeze()  # imported modules stay: a collection that visits all of them would delay runs by milliseconds
    try:
        factory = importlib.import_module("uvloop").new_event_loop
    except ImportError:
        factory = None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            return runner.run(work)
    finally:
        gc.unfreeze()  # objects with finalizers must be found at the end


def bind_to_parent() -> None:
    """Leave signals to the parent, die with it, and have a process group that can be ended as a whole."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, do_nothing)  # not SIG_IGN, which programs started by handlers would inherit
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # the fork server has a handler for it
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    server: Any = getattr(forkserver, "_forkserver", None)
    alive = getattr(server, "_forkserver_alive_fd", None)
    if alive is None or not sys.platform.startswith("linux"):
        return
    # The server that forked this process ends when no process has the pipe open, so this one must close it.
    with contextlib.suppress(OSError):
        os.close(alive)
    server._forkserver_alive_fd = None
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def end_with_parent() -> NoReturn:
    """End this process because its parent is gone, and the processes that handlers started."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def do_nothing(number: int, frame: object) -> None:
    """Ignore a signal: the parent acts on it."""


class Child:
    """The life of one child: open the app, report that it is ready, work until a message stops it."""

    _runtime_class = ChildRuntime

    def __init__(self, config: ChildConfig, table: ClaimTable, app: AppHost, handlers: dict[str, Handler]) -> None:
        self._config = config
        self._table = table
        self._app = app
        self._handlers = handlers
        self._stop = asyncio.Event()
        self._release = False
        self._channel: Channel | None = None
        self._runtime: ChildRuntime | None = None
        self._tasks: set[asyncio.Task[Any]] = set()

    async def work(self, end: socket.socket) -> None:
        """Work until stopped; `end` is this process's end of the channel. The process exits when the parent is gone."""
        channel = self._channel = self._connect(end)
        if await self._open(channel):
            runtime = self._runtime = self._runtime_class(
                self._app, self._config, self._handlers, self._table, channel.send
            )  # fmt: skip
            if self._config.drain:
                await runtime.drain(self._config.scheduled)
            else:
                await runtime.start()
            channel.send(FromChild.READY)
            await self._stop.wait()
            if self._release:
                runtime.release_now.set()
            await runtime.finish()
        await self._app.close()
        channel.send(FromChild.LEFT)
        channel.close()

    def _connect(self, end: socket.socket) -> Channel:
        return Channel(end, self._receive, end_with_parent)

    async def _open(self, channel: Channel) -> bool:
        """Open the storage, however long that takes, and find the parent's heartbeat in it.

        False if the child cannot start, or is stopped before.
        """
        now = asyncio.get_running_loop().time
        rest, missing_since = 0.1, math.inf
        while not self._stop.is_set():
            try:
                await self._app.open()
                if self._config.worker in [record.id for record in await self._app.storage.workers()]:
                    return True
                missing_since = min(missing_since, now())
                own = location_of(self._app.storage)
                why = why_parent_is_missing(self._config.storage, own, now() - missing_since)
                if why is not None:
                    channel.send(FromChild.FAILED + why)
                    return False
                channel.send(FromChild.PARENT_MISSING)
            except StorageUnavailable as error:
                missing_since = math.inf
                log.debug("the storage is not available yet: %s", escape_controls(str(error)))
            except Exception as error:
                channel.send(FromChild.FAILED + one_line(error))
                return False
            await asyncio.sleep(rest)
            rest = min(rest * 2, 5.0 if missing_since == math.inf else 1.0)
        return False

    def _receive(self, message: str) -> None:
        runtime = self._runtime
        if message in (ToChild.STOP, ToChild.RELEASE_AND_STOP):
            if self._channel is not None:
                self._channel.send(FromChild.STOPPING)
            self._stop.set()
        if message == ToChild.RELEASE_AND_STOP:
            self._release = True
            if runtime is not None:
                runtime.release_now.set()
        elif message == ToChild.TAKE_OVER:
            self._config = dataclasses.replace(self._config, replacing=False)
            if runtime is not None:
                runtime.take_over()
        elif runtime is None:
            return
        elif message == ToChild.READ_COMMANDS:
            runtime.read_commands()
        elif message == ToChild.CLAIM_AGAIN:
            runtime.claim_again()
        elif message == ToChild.QUIET:
            runtime.be_quiet()
        elif message == ToChild.ROTA_OVER:
            runtime.end_rota()
        elif message.startswith(ToChild.ROTA):
            runtime.begin_rota(message.removeprefix(ToChild.ROTA))
        elif message == ToChild.RELEASE:
            task = asyncio.ensure_future(runtime.release())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
