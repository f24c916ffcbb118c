"""The memory that a child and its parent share: which claims the child holds, and what the parent says of them.

A claim has a slot from before its run begins until its end is recorded, written by the child, so that
the parent can keep its lease and watch its deadline whatever the child's interpreter is busy with. A
slot's number counts up with each change of hands: odd is held, even is free. What is said of a claim
carries that number, so that it is never taken for something about the next claim in the slot.
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

__all__ = ["ClaimTable", "ParentCommand", "Phase", "Slot", "Verdict"]

#: How many claims a child may hold. Memory is used only for slots that were.
SLOTS = 8192

#: Lengths of queue, token and id, and the attempt; then the three texts.
TEXT_HEAD = struct.Struct("<HHHI")
TEXT_SIZE = 1104
MAX_TOKEN = TEXT_SIZE - TEXT_HEAD.size - 2 * 512

#: Words of the head, all written by the child.
HIGH, LIVE, IDLE, UNITS, RUNS, WITHHELD = range(6)
HEAD_WORDS = 64


class Phase(IntEnum):
    """How far the run of a held claim is."""

    HELD = 0
    RUNNING = 1
    ENDED = 2


#: As numbers, which is what is written.
HELD, RUNNING, ENDED = map(int, Phase)


class Verdict(IntEnum):
    """Why a run must end that cannot be made to: it costs its process."""

    NONE = 0
    TIMEOUT = 1
    KILL = 2
    RELEASE = 3
    LOSS = 4


class ParentCommand(IntEnum):
    """What the parent says of a claim: lost to others, or asked to end, gently or not."""

    NONE = 0
    LOST = 1
    SIGNAL = 2
    KILL = 3


class Slot(NamedTuple):
    """A held claim, as the parent sees it. Times are monotonic seconds; 0 is none."""

    position: int
    number: int
    ref: ClaimRef
    attempt: int
    phase: Phase
    verdict: Verdict
    deadline: float
    timeout: float
    confirmed: float
    begun: float

    @property
    def key(self) -> tuple[int, int]:
        return self.position, self.number


class ClaimTable:
    """The table of one child. It travels to the child with `Process(args=…)`."""

    def __init__(self, fd: int | None = None, slots: int = SLOTS) -> None:
        self.slots = slots
        sizes = (HEAD_WORDS * 8, slots * 8, slots * 8, slots * 8, slots * 8, slots * 8, slots * 4, slots, slots)
        size = sum(sizes) + slots * TEXT_SIZE
        self._fd = anonymous_file(size) if fd is None else fd
        self._memory = mmap.mmap(self._fd, size)
        self._views: list[Any] = []
        whole: Any = memoryview(self._memory)
        at = 0
        for size, kind in zip(sizes, "QddddQIBB", strict=True):
            self._views += [whole[at : at + size], whole[at : at + size].cast(kind)]
            at += size
        self.head, self._deadlines, self._timeouts, self._confirmed, self._begun, *rest = self._views[1::2]
        self._orders, self._numbers, self.phases, self._verdicts = rest  # the phases are the child's to write
        self._texts = whole[at:]
        self._views += [self._texts, whole]
        self._free: list[int] = []
        self._unused = 0

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return rebuild, (reduction.DupFd(self._fd), self.slots)

    def close(self) -> None:
        """Let go of the memory. Idempotent."""
        for view in self._views:
            view.release()
        self._views.clear()
        if self._fd >= 0:
            self._memory.close()
            os.close(self._fd)
            self._fd = -1

    # the child's side -----------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more claims fit."""
        return len(self._free) + self.slots - self._unused

    def hold(self, claims: Sequence[Claim], asked: float) -> list[int]:
        """Write claims down; gives their slots, used ones before new ones."""
        places = self._take(len(claims))
        texts, confirmed, phases, verdicts = self._texts, self._confirmed, self.phases, self._verdicts
        alike, front = None, b""  # most claims of a call begin with the same bytes
        for index, claim in zip(places, claims, strict=True):
            id = claim.id.encode()
            if alike != (alike := (claim.queue, claim.token, len(id), claim.attempts)):
                queue, token = claim.queue.encode(), claim.token.encode()
                front = TEXT_HEAD.pack(len(queue), len(token), len(id), claim.attempts) + queue + token
            text, at = front + id, index * TEXT_SIZE
            texts[at : at + len(text)] = text
            confirmed[index] = asked
            phases[index] = HELD
            verdicts[index] = 0
        self.head[HIGH] = self._unused
        self.head[LIVE] += len(places)
        numbers = self._numbers
        for index in places:  # all that is written is there before it counts
            numbers[index] += 1
        return places

    def _take(self, count: int) -> list[int]:
        """So many slots."""
        free = self._free
        used = max(len(free) - count, 0)
        places, free[used:] = free[used:], ()
        new = range(self._unused, self._unused + count - len(places))
        self._unused += len(new)
        return [*places, *new]

    def begin(self, index: int, deadline: float | None, timeout: float | None, at: float) -> None:
        """The run of a held claim begins."""
        self._begun[index] = at
        self._deadlines[index] = deadline or 0.0
        self._timeouts[index] = timeout or 0.0
        self.phases[index] = RUNNING

    def escalate(self, index: int, verdict: Verdict) -> None:
        """The run cannot be made to end."""
        self._verdicts[index] = verdict

    def drop(self, places: Sequence[int]) -> None:
        """The claims in these slots are held no more."""
        numbers = self._numbers
        for index in places:
            numbers[index] += 1
        self._free += places
        self.head[LIVE] -= len(places)

    def order(self, index: int) -> ParentCommand:
        """What the parent said of the claim in a slot."""
        word = self._orders[index]
        return ParentCommand(word & 3) if word >> 2 == self._numbers[index] else ParentCommand.NONE

    def confirmed(self, index: int) -> float:
        """When the storage last confirmed the claim in a slot."""
        return self._confirmed[index]

    def set_idle(self, idle: bool) -> None:
        """Say whether there is nothing to do; the word is odd while there is not."""
        if self.head[IDLE] % 2 != idle:
            self.head[IDLE] += 1

    # the parent's side ----------------------------------------------------------------------------

    def held(self) -> list[Slot]:
        """Every claim that the child holds."""
        if not self.head[LIVE]:
            return []
        slots = [self._read(index) for index in range(self.head[HIGH]) if self._numbers[index] % 2]
        return [slot for slot in slots if slot is not None]

    def overdue(self, before: float) -> list[Slot]:
        """The runs that are condemned, or whose deadline was before this time."""
        if not self.head[LIVE]:
            return []
        found: list[Slot | None] = []
        for index in range(self.head[HIGH]):
            late = 0 < self._deadlines[index] < before
            if (late or self._verdicts[index]) and self._numbers[index] % 2 and self.phases[index] == RUNNING:
                found.append(self._read(index))
        return [slot for slot in found if slot is not None]

    def unconfirmed(self, before: float) -> list[Slot]:
        """The runs that the storage has not confirmed since this time."""
        if not self.head[LIVE]:
            return []
        found: list[Slot | None] = []
        for index in range(self.head[HIGH]):
            if self._confirmed[index] <= before and self._numbers[index] % 2 and self.phases[index] == RUNNING:
                found.append(self._read(index))
        return [slot for slot in found if slot is not None]

    def confirm(self, slot: Slot, at: float) -> None:
        """The storage has confirmed a claim."""
        if self._numbers[slot.position] == slot.number:
            self._confirmed[slot.position] = at

    def give(self, slot: Slot, order: ParentCommand) -> None:
        """Say something of a claim; the child looks when it is told to."""
        self._orders[slot.position] = slot.number << 2 | order

    def ordered(self, slot: Slot) -> ParentCommand:
        """What was said of a claim so far."""
        word = self._orders[slot.position]
        return ParentCommand(word & 3) if word >> 2 == slot.number else ParentCommand.NONE

    def _read(self, index: int) -> Slot | None:
        number = self._numbers[index]
        at = index * TEXT_SIZE
        queue, token, id, attempt = TEXT_HEAD.unpack_from(self._texts, at)
        text = bytes(self._texts[at + TEXT_HEAD.size : at + TEXT_HEAD.size + queue + token + id])
        rest = (self._deadlines[index], self._timeouts[index], self._confirmed[index], self._begun[index])
        phase, verdict = self.phases[index], self._verdicts[index]
        if number % 2 == 0 or self._numbers[index] != number:
            return None  # it changed hands meanwhile
        names = text[:queue].decode(), text[queue + token :].decode(), text[queue : queue + token].decode()
        return Slot(index, number, ClaimRef(*names), attempt, Phase(phase), Verdict(verdict), *rest)


def anonymous_file(size: int) -> int:
    """A file without a name, gone when its last user is; it has no pages until they are written to."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("penstock")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, size)
    return fd


def rebuild(fd: Any, slots: int) -> ClaimTable:
    """The board in the child, at the same memory."""
    return ClaimTable(fd.detach(), slots)
