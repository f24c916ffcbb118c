"""One child process, as its supervisor sees it."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import signal
import socket
import weakref
from collections.abc import Callable, Mapping
from enum import Enum, auto
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess

from penstock.model.source import source
from penstock.worker.pool import INTERRUPT_GRACE
from penstock.worker.rss import resident
from penstock.worker.run import Interruption
from penstock.worker.supervisor import child, stacks
from penstock.worker.supervisor.channel import Channel, FromChild, ToChild
from penstock.worker.supervisor.claim_table import LIVE, STACKS, TURNS, ClaimTable, Phase, Slot
from penstock.worker.supervisor.config import ChildConfig
from penstock.worker.supervisor.stacks import Stack

__all__ = ["LATE", "ChildHandle", "Stage"]

#: A run that its own process has not ended within this time (seconds) after its deadline counts as overdue.
LATE = INTERRUPT_GRACE + 0.3

#: A child that has nothing left to do is killed if it does not exit within this time (seconds).
EXIT_TIME = 2.0

#: How long (seconds) a child may take to write its stacks, and the pause between two looks at their size.
STACKS_WITHIN, STACKS_PAUSE = 1.0, 0.05

#: How many leases the event loop of a child with claims may stand still while no run of it is under way. The time
#: between two looks of the supervisor counts as one second at most: it may have stood still itself.
STILL_LEASES, LOOK_MAX = 3, 1.0

Key = tuple[int, int]


class Stage(Enum):
    """The stages of a child process, in order."""

    STARTING = auto()
    WORKING = auto()
    LEAVING = auto()
    DEAD = auto()


class ChildHandle:
    """A child process with its claim table and its channel. It is started once."""

    def __init__(
        self, config: ChildConfig, received: Callable[[ChildHandle, str], None], died: Callable[[ChildHandle], None]
    ) -> None:
        self.slot = config.slot
        #: Whether it still leaves queues with `concurrency=n` to the child that it replaces.
        self.replacing = config.replacing
        self.table = ClaimTable()
        self.stage = Stage.STARTING
        self.born = source.monotonic()
        #: When the runs of some claims must have ended, and why.
        self.deadlines: dict[Key, tuple[float, Interruption]] = {}
        #: Why the child could not start, if it could not.
        self.failure: str | None = None
        #: Whether the supervisor killed it, and because of which claims.
        self.killed = False
        self.killed_for: Mapping[Key, Interruption] = {}
        #: Whether it was killed because its leases were not confirmed in time.
        self.fenced = False
        #: Whether it is replaced because a run of it does not end.
        self.stuck = False
        #: The stacks of its runs that do not end, or those of its crash.
        self.stacks: list[Stack] = []
        self._stacks_due, self._next_look = math.inf, math.inf
        self._stacks_before = self._stacks_size = 0
        self.stop_confirmed = self.was_leaving = False
        #: Whether it was killed because its event loop stood still.
        self.hung = False
        #: The turns of its event loop that were seen last, when that was, and how long there were no more.
        self._turns, self._looked, self._still = 0, self.born, 0.0
        self.left_at = self.bound = math.inf
        self._config = config
        self._received = received
        self._died = died
        self._process: BaseProcess | None = None
        self._channel: Channel | None = None

    def __repr__(self) -> str:
        return f"<process {self.pid} in slot {self.slot}, {self.stage.name.lower()}>"

    @property
    def pid(self) -> int | None:
        """The id of the process, None before it is started."""
        return None if self._process is None else self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code of the process, None as long as it runs."""
        return None if self._process is None else self._process.exitcode

    @property
    def death(self) -> str:
        """Its exit code, or the signal that ended it, in words."""
        code = self.exit_code or 0
        if code >= 0:
            return f"exit code {code}"
        name = next((each.name for each in signal.Signals if each == -code), "")
        return f"signal {-code}, {name}" if name else f"signal {-code}"

    async def start(self, context: BaseContext) -> None:
        """Start the process. It sends a message when it is ready."""
        ours, theirs = socket.socketpair()
        name = f"penstock {self._config.worker} {self.slot}"
        # The contexts of multiprocessing have `Process`; the type of their base does not declare it.
        new: Callable[..., BaseProcess] = getattr(context, "Process")  # noqa: B009
        process = self._process = new(target=child.main, args=(self._config, self.table, theirs), name=name)
        try:
            await asyncio.to_thread(process.start)
        except BaseException:
            ours.close()
            self.table.close()
            raise
        finally:
            theirs.close()
        ALIVE.add(self)
        self._channel = Channel(ours, self._receive, lambda: None)
        asyncio.get_running_loop().add_reader(process.sentinel, self._ended)

    def send(self, message: str) -> None:
        """Send the child a message."""
        if self._channel is not None:
            self._channel.send(message)

    def take_over(self) -> None:
        """Have the child serve queues with `concurrency=n`: the one that it replaces has no runs of them any more."""
        self.replacing = False
        self.send(ToChild.TAKE_OVER)

    def leave(self, within: float = math.inf) -> None:
        """Have the child stop when its runs have ended; after `within` seconds it is killed."""
        now = source.monotonic()
        self.bound = min(self.bound, now + within)
        if self.stage is Stage.LEAVING:
            return
        if self.stage is Stage.STARTING and not self.table.held():
            self.kill({})
        self.stage = Stage.LEAVING
        self.left_at = now
        self.send(ToChild.STOP)

    def kill(self, stuck: Mapping[Key, Interruption]) -> None:
        """Kill the process because of these claims, whose runs do not end."""
        self.killed, self.killed_for = True, stuck
        if self._process is not None:
            self._process.kill()

    def set_deadline(self, slot: Slot, why: Interruption) -> None:
        """Set the time by which the run of a claim must have ended; an earlier one stays."""
        self.deadlines.setdefault(slot.key, (source.monotonic() + LATE, why))

    def overdue(self, now: float) -> dict[Key, Interruption]:
        """Return the claims whose runs should have ended, and why they should."""
        overdue = {slot.key: slot.interruption or Interruption.TIMEOUT for slot in self.table.overdue(now - LATE)}
        due = {key: why for key, (by, why) in self.deadlines.items() if by <= now}
        if due:
            running = {slot.key for slot in self.table.held() if slot.phase is Phase.RUNNING}
            overdue.update({key: why for key, why in due.items() if key in running})
            self.deadlines = {key: value for key, value in self.deadlines.items() if key not in due or key in running}
        return overdue

    def stands_still(self, now: float) -> bool:
        """Return whether it has claims that it neither runs nor settles, because its event loop does not turn.

        While a run is under way it may be that which holds up the event loop; then the timeout of the run counts.
        """
        turns, since = self.table.head[TURNS], min(now - self._looked, LOOK_MAX)
        self._looked = now
        if turns != self._turns or not self.table.head[LIVE] or self.table.has_running():
            self._turns, self._still = turns, 0.0
        else:
            self._still += since
        return self._still >= STILL_LEASES * self._config.lease

    def kill_hung(self) -> None:
        """Kill the process because its event loop stands still; its claims stall, as if it had died by itself."""
        self.hung = True
        if self._process is not None:
            self._process.kill()

    def must_die(self, now: float, overdue: Mapping[Key, Interruption]) -> bool:
        """Return whether a leaving child is to be killed: only overdue runs are left, or no others can go on."""
        if now >= self.bound:
            return True
        if not overdue:
            return False
        frozen = not self.stop_confirmed and now >= self.left_at + INTERRUPT_GRACE
        return frozen or all(slot.key in overdue for slot in self.table.held())

    def kill_with_stacks(self, stuck: Mapping[Key, Interruption], now: float) -> None:
        """Have the child write the stacks of its threads; then `finish_kill` kills it.

        It writes them even while its interpreter is busy. The fault handler reads the frames of threads that
        run, which may crash the process. So this comes last, and a death from now on counts as the kill.
        """
        if self.pid is None or not self.table.head[STACKS]:
            self.kill(stuck)
            return
        self.killed, self.killed_for = True, stuck
        self._stacks_due, self._next_look = now + STACKS_WITHIN, now
        self._stacks_before = self._stacks_size = self.table.stacks_size
        stacks.request(self.pid)

    def finish_kill(self, now: float) -> None:
        """Kill a child that writes its stacks as soon as their size does not change any more, or its time is over."""
        if now < min(self._next_look, self._stacks_due):
            return
        size, before = self.table.stacks_size, self._stacks_size
        self._stacks_size, self._next_look = size, now + STACKS_PAUSE
        if now >= self._stacks_due or self._stacks_before < size == before:
            self._stacks_due = self._next_look = math.inf
            self.kill(self.killed_for)

    def memory(self) -> int:
        """Return the bytes of memory that the process has, 0 where that is not known."""
        return 0 if self.pid is None else resident(self.pid)

    def close(self) -> None:
        """Close the channel, the claim table and the process object."""
        if self._channel is not None:
            self._channel.close()
        self.table.close()
        if self._process is not None:
            self._process.close()

    def kill_at_exit(self) -> None:
        """Kill the process when the interpreter exits: multiprocessing would wait for it."""
        if self._process is not None and self.stage is not Stage.DEAD:
            self._process.kill()
            end_group(self.pid)

    def _receive(self, message: str) -> None:
        if message == FromChild.READY and self.stage is Stage.STARTING:
            self.stage = Stage.WORKING
        elif message == FromChild.STOPPING:
            self.stop_confirmed = True
        elif message == FromChild.LEFT:
            self.bound = min(self.bound, source.monotonic() + EXIT_TIME)
        elif message.startswith(FromChild.FAILED):
            self.failure = message.removeprefix(FromChild.FAILED)
        self._received(self, message)

    def _ended(self) -> None:
        assert self._process is not None
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        end_group(self.pid)
        ALIVE.discard(self)
        self._report_end()

    def _report_end(self) -> None:
        """Read the last messages and stacks of a process that has ended, and report its end to the supervisor."""
        if self._channel is not None:
            self._channel.read_rest()
        self.stacks = self.stacks or self.table.stacks()
        self.was_leaving = self.stage is Stage.LEAVING
        self.stage = Stage.DEAD
        self._died(self)


def end_group(pid: int | None) -> None:
    """Kill the processes that handlers of a dead child started, and that are still in its process group.

    A process that is to outlive its worker leaves the group: `start_new_session=True`, or `os.setsid()`.
    """
    if pid is not None:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)


#: The children that are alive: multiprocessing would wait for them when the interpreter exits.
ALIVE: weakref.WeakSet[ChildHandle] = weakref.WeakSet()


@atexit.register
def _kill_all() -> None:
    for each in list(ALIVE):
        each.kill_at_exit()
