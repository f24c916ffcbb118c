"""The claim table: memory that a child and its supervisor share, with the child's claims and their commands.

A claim has a slot from before its run begins until its outcome is recorded. The child writes it, so
that the supervisor can renew the lease and watch the deadline while the child's interpreter is busy
or dead. The number of a slot grows by one when a claim takes it and when the claim leaves it: odd is
held, even is free. A command carries that number, so that it never applies to the next claim in the
slot. Messages that need a reaction travel over the channel, see `channel`.

Behind the table, in the same file, the child writes the stacks of runs that do not end, see `stacks`.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
from collections.abc import Callable, Sequence
from enum import IntEnum
from multiprocessing import reduction
from typing import Any, NamedTuple

from penstock.model.job import Claim
from penstock.storage.base import ClaimRef
from penstock.worker.run import Interruption
from penstock.worker.supervisor.stacks import Stack, parse, write_on_request

__all__ = ["ClaimTable", "ParentCommand", "Phase", "Slot"]

#: How many claims a child may hold. Memory is used only for slots that have been written.
SLOTS = 8192

#: Lengths of queue, token and id, and the attempt; then the three texts.
TEXT_HEAD = struct.Struct("<HHHI")
TEXT_SIZE = 1104
MAX_TOKEN = TEXT_SIZE - TEXT_HEAD.size - 2 * 512

#: Counters of the head, all written by the child: the highest slot used so far, claims held, the idle counter
#: (see `set_idle`), units in use, runs under way, units that the throttle withholds, whether it writes stacks, and the
#: turns of its event loop that it has counted. Of a child that is watched: when it noted its state, since when it looks
#: for work (0: it does not), when the storage answered last (monotonic ms), and the lag of its event loop (ms).
HIGH, LIVE, IDLE, UNITS, RUNS, WITHHELD, STACKS, TURNS, NOTED, CLAIMING, ANSWERED, LAG = range(12)
HEAD_SIZE = 64

#: How many bytes of stacks are written for coroutines, and read.
MAX_STACKS = 65_536


class Phase(IntEnum):
    """The progress of the run of a held claim."""

    HELD = 0
    RUNNING = 1
    ENDED = 2


#: The phases as the numbers that are written.
HELD, RUNNING, ENDED = map(int, Phase)


class ParentCommand(IntEnum):
    """A command of the supervisor about a claim: its lease is lost, or its run is to be cancelled or killed."""

    NONE = 0
    LOST = 1
    SIGNAL = 2
    KILL = 3


class Slot(NamedTuple):
    """A held claim, as the supervisor sees it. Times are monotonic seconds; 0 is none."""

    position: int
    number: int
    ref: ClaimRef
    attempt: int
    phase: Phase
    #: Why the run must end that the child cannot end; None as long as it can.
    interruption: Interruption | None
    deadline: float
    timeout: float
    confirmed: float
    begun: float

    @property
    def key(self) -> tuple[int, int]:
        """The slot's position and number, which name one claim."""
        return self.position, self.number


class ClaimTable:
    """The table of one child. It is passed to the child with `Process(args=…)`."""

    def __init__(self, fd: int | None = None, slots: int = SLOTS) -> None:
        self.slots = slots
        sizes = (HEAD_SIZE * 8, slots * 8, slots * 8, slots * 8, slots * 8, slots * 8, slots * 4, slots, slots)
        size = self._size = sum(sizes) + slots * TEXT_SIZE
        self._fd = anonymous_file(size) if fd is None else fd
        os.lseek(self._fd, 0, os.SEEK_END)  # where stacks are written
        self._memory = mmap.mmap(self._fd, size)
        self._views: list[Any] = []
        whole: Any = memoryview(self._memory)
        at = 0
        for size, kind in zip(sizes, "QddddQIBB", strict=True):
            self._views += [whole[at : at + size], whole[at : at + size].cast(kind)]
            at += size
        self.head, self._deadlines, self._timeouts, self._confirmed, self._begun, *rest = self._views[1::2]
        self._commands, self._numbers, self.phases, self._interruptions = rest  # the child writes phases itself
        self._texts = whole[at:]
        self._views += [self._texts, whole]
        self._free: list[int] = []
        self._unused = 0

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return rebuild, (reduction.DupFd(self._fd), self.slots)

    def close(self) -> None:
        """Unmap the memory and close its file. Idempotent."""
        for view in self._views:
            view.release()
        self._views.clear()
        if self._fd >= 0:
            self._memory.close()
            os.close(self._fd)
            self._fd = -1

    # written by the child -------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The number of claims that still fit."""
        return len(self._free) + self.slots - self._unused

    def hold(self, claims: Sequence[Claim], asked: float) -> list[int]:
        """Write claims into slots, used ones before new ones; returns the slots."""
        slots = self._take(len(claims))
        texts, confirmed, phases, interruptions = self._texts, self._confirmed, self.phases, self._interruptions
        alike, front = None, b""  # most claims of a call begin with the same bytes
        for index, claim in zip(slots, claims, strict=True):
            id = claim.id.encode()
            if alike != (alike := (claim.queue, claim.token, len(id), claim.attempts)):
                queue, token = claim.queue.encode(), claim.token.encode()
                front = TEXT_HEAD.pack(len(queue), len(token), len(id), claim.attempts) + queue + token
            text, at = front + id, index * TEXT_SIZE
            texts[at : at + len(text)] = text
            confirmed[index] = asked
            phases[index] = HELD
            interruptions[index] = 0
        self.head[HIGH] = self._unused
        self.head[LIVE] += len(slots)
        numbers = self._numbers
        for index in slots:  # last: a slot counts only when all of it is written
            numbers[index] += 1
        return slots

    def _take(self, count: int) -> list[int]:
        """Take this number of slots."""
        free = self._free
        used = max(len(free) - count, 0)
        slots, free[used:] = free[used:], ()
        new = range(self._unused, self._unused + count - len(slots))
        self._unused += len(new)
        return [*slots, *new]

    def begin(self, index: int, deadline: float | None, timeout: float | None, at: float) -> None:
        """Write that the run of a held claim begins."""
        self._begun[index] = at
        self._deadlines[index] = deadline or 0.0
        self._timeouts[index] = timeout or 0.0
        self.phases[index] = RUNNING

    def escalate(self, index: int, why: Interruption) -> None:
        """Write why a run must end that the child cannot end."""
        self._interruptions[index] = why

    def drop(self, slots: Sequence[int]) -> None:
        """Free these slots: their claims are not held any more."""
        numbers = self._numbers
        for index in slots:
            numbers[index] += 1
        self._free += slots
        self.head[LIVE] -= len(slots)

    def command(self, index: int) -> ParentCommand:
        """Return the supervisor's command for the claim in a slot."""
        command = self._commands[index]
        return ParentCommand(command & 3) if command >> 2 == self._numbers[index] else ParentCommand.NONE

    def confirmed(self, index: int) -> float:
        """Return when the storage last confirmed the claim in a slot."""
        return self._confirmed[index]

    def set_idle(self, idle: bool) -> None:
        """Set the idle flag: the counter is odd while a drain finds nothing to do, and shows every change."""
        if self.head[IDLE] % 2 != idle:
            self.head[IDLE] += 1

    def write_stacks_on_request(self) -> None:
        """Have the fault handler of this process write stacks behind the table."""
        self.head[STACKS] = write_on_request(self._fd)

    def write_stack(self, text: str) -> None:
        """Write the stack of a coroutine behind the table."""
        if self.stacks_size + len(text) < MAX_STACKS:
            os.write(self._fd, text.encode("utf-8", "backslashreplace"))

    # read and written by the supervisor -----------------------------------------------------------

    @property
    def stacks_size(self) -> int:
        """The number of bytes of stacks that the child has written."""
        return os.fstat(self._fd).st_size - self._size

    def stacks(self) -> list[Stack]:
        """Return the stacks that the child has written."""
        return parse(os.pread(self._fd, MAX_STACKS, self._size).decode("utf-8", "replace"))

    def held(self) -> list[Slot]:
        """Return every claim that the child holds."""
        if not self.head[LIVE]:
            return []
        slots = [self._read(index) for index in range(self.head[HIGH]) if self._numbers[index] % 2]
        return [slot for slot in slots if slot is not None]

    def has_running(self) -> bool:
        """Return whether a run of the child is under way."""
        return any(self._numbers[index] % 2 and self.phases[index] == RUNNING for index in range(self.head[HIGH]))

    def overdue(self, before: float) -> list[Slot]:
        """Return the runs that the child cannot end, and those whose deadline was before this time."""
        if not self.head[LIVE]:
            return []
        found: list[Slot | None] = []
        for index in range(self.head[HIGH]):
            late = 0 < self._deadlines[index] < before
            if (late or self._interruptions[index]) and self._numbers[index] % 2 and self.phases[index] == RUNNING:
                found.append(self._read(index))
        return [slot for slot in found if slot is not None]

    def unconfirmed(self, before: float) -> list[Slot]:
        """Return the runs that the storage has not confirmed since this time."""
        if not self.head[LIVE]:
            return []
        found: list[Slot | None] = []
        for index in range(self.head[HIGH]):
            if self._confirmed[index] <= before and self._numbers[index] % 2 and self.phases[index] == RUNNING:
                found.append(self._read(index))
        return [slot for slot in found if slot is not None]

    def confirm(self, slot: Slot, at: float) -> None:
        """Write that the storage has confirmed a claim, unless the slot has another claim by now."""
        if self._numbers[slot.position] == slot.number:
            self._confirmed[slot.position] = at

    def give(self, slot: Slot, command: ParentCommand) -> None:
        """Write a command for a claim; the child reads it when a message asks it to."""
        self._commands[slot.position] = slot.number << 2 | command

    def command_for(self, slot: Slot) -> ParentCommand:
        """Return the last command for a claim."""
        command = self._commands[slot.position]
        return ParentCommand(command & 3) if command >> 2 == slot.number else ParentCommand.NONE

    def _read(self, index: int) -> Slot | None:
        """Return the claim in a slot, None if the child changed the slot meanwhile."""
        number = self._numbers[index]
        at = index * TEXT_SIZE
        queue, token, id, attempt = TEXT_HEAD.unpack_from(self._texts, at)
        text = bytes(self._texts[at + TEXT_HEAD.size : at + TEXT_HEAD.size + queue + token + id])
        rest = (self._deadlines[index], self._timeouts[index], self._confirmed[index], self._begun[index])
        phase, why = self.phases[index], self._interruptions[index]
        if number % 2 == 0 or self._numbers[index] != number:
            return None  # another claim took the slot meanwhile
        names = text[:queue].decode(), text[queue + token :].decode(), text[queue : queue + token].decode()
        return Slot(index, number, ClaimRef(*names), attempt, Phase(phase), Interruption(why) if why else None, *rest)


def anonymous_file(size: int) -> int:
    """Create a file without a name: it is gone with its last user, and takes memory only where it was written."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("penstock")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def rebuild(fd: Any, slots: int) -> ClaimTable:
    """Map the same memory in the child."""
    return ClaimTable(fd.detach(), slots)
