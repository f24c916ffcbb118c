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
from collections.abc import Callable, Coroutine, Sequence
from multiprocessing import forkserver
from typing import Any, TypeVar

from penstock.errors import StorageUnavailable
from penstock.outcome import Outcome, Released
from penstock.supervisor.board import RUNS, UNITS, WITHHELD, Board
from penstock.supervisor.keeper import BoardLeases
from penstock.supervisor.line import Line
from penstock.supervisor.locate import load_all, one_line
from penstock.supervisor.logs import configure
from penstock.supervisor.place import place_of, why_unseen
from penstock.supervisor.settings import Settings
from penstock.task import Handler
from penstock.worker.handlers import select_handlers, share_of
from penstock.worker.host import Host
from penstock.worker.leases import Leases
from penstock.worker.loop import Loop
from penstock.worker.pool import Run
from penstock.worker.shift import Shift

__all__ = ["main", "run"]

T = TypeVar("T")

log = logging.getLogger("penstock.worker")

PR_SET_PDEATHSIG = 1

#: How long (seconds) a job on its last chance waits for the process to be empty.
ALONE_WITHIN = 10.0


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


class ChildShift(Shift):
    """A shift whose leases, deadlines and presence are the parent's care."""

    def __init__(
        self, host: Host, settings: Settings, handlers: dict[str, Handler], board: Board, say: Callable[[str], None]
    ) -> None:
        self._board = board
        self._say = say
        self._max_jobs = settings.max_jobs
        self._full = False
        self._suspects: list[Run] = []
        self._alone: Run | None = None
        self._counting = False
        super().__init__(host, settings.worker, handlers, settings.capacity, settings.lease, settings.adaptive)
        if settings.beside:
            self._claimer.barred = frozenset(q for q, handler in handlers.items() if handler.options.concurrency)
        self._pool.condemn = self._condemn

    def _new_leases(self, lease: float) -> Leases:
        self._keeper = BoardLeases(self._host, self._worker, lease, self._pool, self._board)
        return self._keeper

    def _loops(self) -> list[Loop]:
        return [self._settling, self._renewing, self._watching, self._claiming]

    def _new_heart(self) -> None:
        """The parent's is better."""

    async def _leave(self) -> None:
        """The parent is still there."""

    def look(self) -> None:
        """The parent has said something of the claims."""
        self._renewing.wake()

    def take_over(self) -> None:
        """Nobody else of this seat has runs of the queues that were barred."""
        self._claimer.barred = frozenset()
        self._claiming.wake()

    def again(self) -> None:
        """The parent has given jobs back."""
        self._board.set_idle(False)
        self._claiming.wake()

    async def finish(self) -> None:
        self._claimer.stopping = True
        waiting, self._suspects = self._suspects, []
        for run in waiting:
            self._settler.add(run, [Released()] * len(run.members))
        await super().finish()

    # drain ----------------------------------------------------------------------------------------

    async def _drain(self) -> float | None:
        self._board.set_idle(False)
        return await super()._drain()

    def _nothing_left(self) -> float | None:
        self._board.set_idle(True)
        self._say("idle")
        return self._claimer.patience()

    # runs -----------------------------------------------------------------------------------------

    def _room(self) -> float:
        if self._max_jobs is not None and self._keeper.begun >= self._max_jobs:
            if not self._full:
                self._full = True
                self._say("full")
            return 0
        return 0 if self._suspects or self._alone else min(super()._room(), self._board.room)

    def _start(self, runs: Sequence[Run]) -> None:
        """Jobs whose process died before run alone when one more time would be the last: they may be the reason."""
        batch = runs[0].handler.batch
        suspects = [run for run in runs if (batch or run.members[0].claim.stalls) and on_last_chance(run)]
        if innocent := [run for run in runs if run not in suspects] if suspects else runs:
            super()._start(innocent)
        for run in suspects:
            if self._alone is None and not self._suspects and self._empty:
                self._start_alone(run)
            else:
                self._suspects.append(run)
                asyncio.get_running_loop().call_later(ALONE_WITHIN, self._next_suspect, run)
        self._count()

    def _start_alone(self, run: Run) -> None:
        self._alone = run
        super()._start([run])

    def _ended(self, run: Run, outcomes: list[Outcome]) -> None:
        if run is self._alone:
            self._alone = None
        super()._ended(run, outcomes)
        if not self._counting:
            self._count()
        if self._suspects:
            self._all_settled()

    def _all_settled(self) -> None:
        """What went well before a suspect runs must be recorded, or it would count as lost with it."""
        super()._all_settled()
        if self._suspects and self._empty:
            self._next_suspect(self._suspects[0])

    @property
    def _empty(self) -> bool:
        return self._pool.empty and not self._settler.busy

    def _next_suspect(self, run: Run) -> None:
        if run not in self._suspects:
            return
        if self._alone is not None:
            asyncio.get_running_loop().call_later(1.0, self._next_suspect, run)
        else:
            self._suspects.remove(run)
            self._start_alone(run)
            self._count()

    def _share_changed(self) -> None:
        super()._share_changed()
        self._count()

    def _count(self) -> None:
        """Have the parent know, once in a turn of the event loop."""
        if not self._counting:
            self._counting = True
            asyncio.get_running_loop().call_soon(self._count_now)

    def _count_now(self) -> None:
        self._counting = False
        self._board.head[UNITS] = max(self._pool.busy, 0)
        self._board.head[RUNS] = len(self._pool.live)
        self._board.head[WITHHELD] = self._pool.capacity - self._pool.allowed

    def _condemn(self, run: Run) -> None:
        self._keeper.condemn(run)
        self._say("stuck")


def on_last_chance(run: Run) -> bool:
    """Whether one more dead process would fail a job of this run for good."""
    return any(0 < member.claim.stalls == (member.rules.max_stalls or 0) - 1 for member in run.members)
