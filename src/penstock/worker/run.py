"""The runs that are alive, the units they hold, and those that were claimed ahead."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from enum import Enum, auto

from penstock.model.context import Job, JobServices
from penstock.model.handler import Handler
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions, JobLimits, rules_for
from penstock.model.outcome import Outcome
from penstock.storage.base import ClaimRef, Settlement

__all__ = ["Interruption", "Run", "RunJob", "units_of"]


class Interruption(Enum):
    """Why a run is made to end."""

    TIMEOUT = auto()
    KILL = auto()
    RELEASE = auto()
    LOSS = auto()


class RunJob:
    """One job of a run: its claim with the lease behind it, and what came of it."""

    __slots__ = (
        "_job",
        "_services",
        "claim",
        "confirmed",
        "ended",
        "kill_requested",
        "lost",
        "outcome",
        "rules",
        "run",
        "settlement",
        "slot",
    )  # fmt: skip

    #: Its run; none when the end is recorded, so that nothing is left for the garbage collector.
    run: Run | None
    outcome: Outcome
    #: How its end is recorded.
    settlement: Settlement

    def __init__(self, claim: Claim, options: HandlerOptions, desk: JobServices, confirmed: float = 0.0) -> None:
        self.claim = claim
        self.rules = options if not claim.limits else rules_for(options, JobLimits.decode(claim.limits))
        #: When the storage last confirmed the lease (monotonic).
        self.confirmed = confirmed
        self.ended = False
        self.lost = False
        self.kill_requested = False
        #: Where it is written down for a parent process; less than 0 is nowhere.
        self.slot = -1
        self._services = desk
        self._job: Job | None = None

    @property
    def job(self) -> Job:
        """The job as its handler sees it."""
        if self._job is None:
            self._job = Job(self.claim, self._services)
        return self._job

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked the run to end."""
        return self._job is not None and bool(self._job.cancelled)

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """The jobs that exist if this one completes."""
        return () if self._job is None else tuple(self._job.follow_ups)

    @property
    def ref(self) -> ClaimRef:
        """The claim as the storage names it."""
        return ClaimRef(self.claim.queue, self.claim.id, self.claim.token)


class Run:
    """One call of a handler: its jobs, how long it may take, and why it was interrupted, if it was."""

    __slots__ = (
        "began", "deadline", "handler", "interruption", "jobs", "task", "timeout", "took", "units", "waits_since",
    )  # fmt: skip

    def __init__(self, handler: Handler, members: Sequence[RunJob], units: int) -> None:
        self.handler = handler
        self.jobs = members
        self.units = units
        #: The seconds it may take, None without a bound.
        self.timeout = members[0].rules.timeout if len(members) == 1 else timeout_of(members)
        #: Since when it waits for its turn, if it had to, and when it began (monotonic).
        self.waits_since = self.began = 0.0
        #: How long it took (seconds), if anybody wants to know.
        self.took = 0.0
        self.deadline: float | None = None
        self.interruption: Interruption | None = None
        self.task: asyncio.Task[None] | None = None
        for member in members:
            member.run = self


def timeout_of(members: Sequence[RunJob]) -> float | None:
    """The seconds that the run of several jobs may take: those of its jobs together."""
    total = 0.0
    for member in members:
        if member.rules.timeout is None:
            return None
        total += member.rules.timeout
    return total


def units_of(handler: Handler) -> int:
    """The units that one run of a handler holds; with `concurrency=n` there is room for n beside all others."""
    return handler.options.size if handler.options.concurrency is None else 0
