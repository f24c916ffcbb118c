"""The runs that are alive, and the units they hold."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto

from penstock.job import Claim
from penstock.outcome import Outcome
from penstock.policy import HandlerOptions, JobLimits, rules_for
from penstock.run import Desk, Job
from penstock.task import Handler

__all__ = ["Interruption", "Member", "Pool", "Run", "units_of"]

#: How long an interrupted run may take to end before it goes on unheard (seconds).
PATIENCE = 1.0


class Interruption(Enum):
    """Why a run is made to end."""

    TIMEOUT = auto()
    KILL = auto()
    RELEASE = auto()
    LOSS = auto()


class Member:
    """One job of a run."""

    __slots__ = ("claim", "ended", "job", "lost", "rules", "wanted_dead")

    def __init__(self, claim: Claim, options: HandlerOptions, desk: Desk) -> None:
        self.claim = claim
        self.rules = options if not claim.limits else rules_for(options, JobLimits.decode(claim.limits))
        self.job = Job(claim, desk)
        self.ended = False
        self.lost = False
        self.wanted_dead = False


class Run:
    """One call of a handler: its jobs, how long it may take, and why it was interrupted, if it was."""

    __slots__ = ("began", "deadline", "handler", "interruption", "members", "task", "units")

    def __init__(self, handler: Handler, members: Sequence[Member], units: int) -> None:
        self.handler = handler
        self.members = members
        self.units = units
        self.began = 0.0
        self.deadline: float | None = None
        self.interruption: Interruption | None = None
        self.task: asyncio.Task[None] | None = None

    @property
    def timeout(self) -> float | None:
        """The seconds it may take: those of its jobs together, None without a bound."""
        total = 0.0
        for member in self.members:
            if member.rules.timeout is None:
                return None
            total += member.rules.timeout
        return total


class Pool:
    """The live runs of a worker. What is free is always worked out from them, so it cannot drift."""

    def __init__(
        self,
        capacity: int,
        execute: Callable[[Run], Awaitable[list[Outcome]]],
        give_up: Callable[[Run], list[Outcome]],
        ended: Callable[[Run, list[Outcome]], None],
        least: int = 1,
    ) -> None:
        self.capacity = capacity
        self._least = least
        #: The share of the capacity that may be used; less than all while the process cannot keep up.
        self.share = 1.0
        self.live: set[Run] = set()
        self._execute = execute
        self._give_up = give_up
        self._ended = ended
        self._change = asyncio.Event()
        #: Called with a time by which `sweep` must be called.
        self.watch: Callable[[float], None] = lambda _: None
        #: In a process that may be killed: called with a run that cannot be made to end otherwise.
        self.condemn: Callable[[Run], None] | None = None

    @property
    def busy(self) -> int:
        """The units in use."""
        return sum(run.units for run in self.live)

    @property
    def allowed(self) -> int:
        """The units that may be in use now: never fewer than the largest run needs, so that no queue starves."""
        return self.capacity if self.share >= 1 else max(self._least, int(self.capacity * self.share))

    @property
    def free(self) -> int:
        """The units that may be claimed for; below zero when less is allowed than is in use."""
        return self.allowed - self.busy

    def slots(self, n: int) -> int:
        """How many runs of a handler with `concurrency=n` there may be now."""
        return max(1, int(n * self.share))

    def running(self, queue: str) -> int:
        return sum(1 for run in self.live if run.handler.queue == queue)

    def start(self, run: Run) -> None:
        """Begin a run in a task of its own."""
        loop = asyncio.get_running_loop()
        seconds = run.timeout
        run.began = loop.time()
        run.deadline = None if seconds is None else run.began + seconds
        self.live.add(run)
        run.task = loop.create_task(self._run(run))
        if run.deadline is not None:
            self.watch(run.deadline)

    def interrupt(self, run: Run, why: Interruption) -> None:
        """Make a run end; the first reason stands."""
        if run.interruption is not None or run not in self.live:
            return
        run.interruption = why
        if self.condemn is not None and not run.handler.signature.is_async:
            # A thread cannot be cancelled, but it may look whether somebody wants it to end.
            if why is not Interruption.KILL:
                self._doom(run)
                return
        else:
            assert run.task is not None
            run.task.cancel()
        run.deadline = asyncio.get_running_loop().time() + PATIENCE
        self.watch(run.deadline)

    def sweep(self, now: float) -> float:
        """Interrupt what is over its time, abandon what does not end; gives when to look again."""
        for run in list(self.live):
            if run.deadline is not None and run.deadline <= now:
                if run.interruption is None:
                    self.interrupt(run, Interruption.TIMEOUT)
                else:
                    self._doom(run)
        return min((run.deadline for run in self.live if run.deadline is not None), default=math.inf)

    def _doom(self, run: Run) -> None:
        """A run will not end: it costs the process, or it is reported and whatever it still does is not heard."""
        run.deadline = None
        if self.condemn is not None:
            self.condemn(run)
        else:
            self._finish(run, self._give_up(run))

    async def wait_empty(self) -> None:
        while self.live:
            await self._changed()

    async def wait_gone(self, runs: Sequence[Run]) -> None:
        while any(run in self.live for run in runs):
            await self._changed()

    async def _changed(self) -> None:
        self._change.clear()
        await self._change.wait()

    async def _run(self, run: Run) -> None:
        self._finish(run, await self._execute(run))

    def _finish(self, run: Run, outcomes: list[Outcome]) -> None:
        if run in self.live:
            self.live.discard(run)
            self._change.set()
            self._ended(run, outcomes)


def units_of(handler: Handler) -> int:
    """The units that one run of a handler holds; with `concurrency=n` there is room for n beside all others."""
    return handler.options.size if handler.options.concurrency is None else 0
