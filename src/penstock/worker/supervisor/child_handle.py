"""One child process, as its parent sees it."""

from __future__ import annotations

import asyncio
import atexit
import math
import socket
import time
import weakref
from collections.abc import Callable, Mapping
from enum import Enum, auto
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from penstock.worker.pool import INTERRUPT_GRACE
from penstock.worker.rss import resident
from penstock.worker.supervisor import child
from penstock.worker.supervisor.channel import Channel
from penstock.worker.supervisor.claim_table import ClaimTable, Phase, Slot, Verdict
from penstock.worker.supervisor.config import ChildConfig

__all__ = ["LATE", "ChildHandle", "Stage"]

#: A run whose own process has not ended it so long (seconds) after its deadline never will.
LATE = INTERRUPT_GRACE + 0.3

Key = tuple[int, int]


class Stage(Enum):
    """Where a child is in its life."""

    STARTING = auto()
    WORKING = auto()
    LEAVING = auto()
    DEAD = auto()


class ChildHandle:
    """A child, its board and its line; it is started once, told to leave, and at last dead."""

    def __init__(
        self, settings: ChildConfig, told: Callable[[ChildHandle, str], None], died: Callable[[ChildHandle], None]
    ) -> None:
        self.slot = settings.slot
        #: Whether it leaves queues with `concurrency=n` to the child that it replaces.
        self.replacing = settings.replacing
        self.table = ClaimTable()
        self.stage = Stage.STARTING
        self.born = time.monotonic()
        #: Claims that must be over by then, and why.
        self.deadlines: dict[Key, tuple[float, Verdict]] = {}
        #: What the child said before it was ready, if it could not start.
        self.failure: str | None = None
        #: Whether it was us who ended it, and for which claims.
        self.killed = False
        self.killed_for: Mapping[Key, Verdict] = {}
        self.fenced = False
        #: Whether it is asked to end because a run of its own cannot be ended.
        self.stuck = False
        self.stop_confirmed = self.was_leaving = False
        self.left_at = self.bound = math.inf
        self._settings = settings
        self._received = told
        self._died = died
        self._process: BaseProcess | None = None
        self._line: Channel | None = None

    def __repr__(self) -> str:
        return f"<process {self.pid} in seat {self.slot}, {self.stage.name.lower()}>"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        return None if self._process is None else self._process.exitcode

    async def start(self, context: BaseContext) -> None:
        """Start the process. It says when it is ready."""
        ours, theirs = socket.socketpair()
        name = f"penstock {self._settings.worker} {self.slot}"
        # Multiprocessing's contexts have the class, though the type of their base does not say so.
        new: Callable[..., BaseProcess] = getattr(context, "Process")  # noqa: B009
        process = self._process = new(target=child.main, args=(self._settings, self.table, theirs), name=name)
        try:
            await asyncio.to_thread(process.start)
        except BaseException:
            ours.close()
            self.table.close()
            raise
        finally:
            theirs.close()
        ALIVE.add(self)
        self._line = Channel(ours, self._receive, lambda: None)
        asyncio.get_running_loop().add_reader(process.sentinel, self._ended)

    def send(self, words: str) -> None:
        """Tell the child something."""
        if self._line is not None:
            self._line.send(words)

    def take_over(self) -> None:
        """The child that it replaces has nothing of those queues any more."""
        self.replacing = False
        self.send("take over")

    def leave(self, within: float = math.inf) -> None:
        """Claim no more, let runs end, and go; after `within` seconds the rest is killed."""
        now = time.monotonic()
        self.bound = min(self.bound, now + within)
        if self.stage is Stage.LEAVING:
            return
        if self.stage is Stage.STARTING and not self.table.held():
            self.kill({})
        self.stage = Stage.LEAVING
        self.left_at = now
        self.send("stop")

    def kill(self, guilty: Mapping[Key, Verdict]) -> None:
        """End the process, for the sake of these claims."""
        self.killed, self.killed_for = True, guilty
        if self._process is not None:
            self._process.kill()

    def set_deadline(self, slot: Slot, verdict: Verdict) -> None:
        """A run must be over within the usual patience."""
        self.deadlines.setdefault(slot.key, (time.monotonic() + LATE, verdict))

    def overdue(self, now: float) -> dict[Key, Verdict]:
        """The runs that do not end though they should, and why they should."""
        guilty = {slot.key: slot.verdict or Verdict.TIMEOUT for slot in self.table.overdue(now - LATE)}
        due = {key: verdict for key, (by, verdict) in self.deadlines.items() if by <= now}
        if due:
            running = {slot.key for slot in self.table.held() if slot.phase is Phase.RUNNING}
            guilty.update({key: verdict for key, verdict in due.items() if key in running})
            self.deadlines = {key: value for key, value in self.deadlines.items() if key not in due or key in running}
        return guilty

    def must_die(self, now: float, guilty: Mapping[Key, Verdict]) -> bool:
        """Whether waiting for a leaving child has come to its end: nobody innocent is left, or can go on."""
        if now >= self.bound:
            return True
        if not guilty:
            return False
        frozen = not self.stop_confirmed and now >= self.left_at + INTERRUPT_GRACE
        return frozen or all(slot.key in guilty for slot in self.table.held())

    def memory(self) -> int:
        """The bytes of memory that the process has, 0 where that is not known."""
        return 0 if self.pid is None else resident(self.pid)

    def close(self) -> None:
        """Let go of everything that the child had."""
        if self._line is not None:
            self._line.close()
        self.table.close()
        if self._process is not None:
            self._process.close()

    def end_now(self) -> None:
        """At the interpreter's exit: nobody would wait for it."""
        if self._process is not None and self.stage is not Stage.DEAD:
            self._process.kill()

    def _receive(self, words: str) -> None:
        if words == "ready" and self.stage is Stage.STARTING:
            self.stage = Stage.WORKING
        elif words == "stopping":
            self.stop_confirmed = True
        elif words == "bye":
            self.bound = min(self.bound, time.monotonic() + 2.0)
        elif words.startswith("failed "):
            self.failure = words.removeprefix("failed ")
        self._received(self, words)

    def _ended(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        if self._line is not None:
            self._line.read_rest()
        self.was_leaving = self.stage is Stage.LEAVING
        self.stage = Stage.DEAD
        ALIVE.discard(self)
        self._died(self)


#: Children that are alive. Multiprocessing would wait for them when the interpreter ends.
ALIVE: weakref.WeakSet[ChildHandle] = weakref.WeakSet()


@atexit.register
def _end_all() -> None:
    for hand in list(ALIVE):
        hand.end_now()
