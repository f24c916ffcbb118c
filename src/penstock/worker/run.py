"""One run of a handler: its jobs, why it may be interrupted, and the steps it passes through."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Protocol

from penstock.model.context import Job, JobServices
from penstock.model.durable import Durable, Suspension
from penstock.model.handler import Handler
from penstock.model.job import Claim, NewJob
from penstock.model.options import HandlerOptions, JobBounds, rules_for
from penstock.model.outcome import Outcome
from penstock.model.plain_job import Job as PlainJob
from penstock.storage.base import ClaimRef, Settlement

__all__ = ["Interruption", "Run", "RunFlow", "RunJob", "SettleFlow", "slots_of", "units_of"]


class Interruption(IntEnum):
    """Why a run is made to end. A child writes the number into its claim table, where 0 is no interruption."""

    TIMEOUT = 1
    KILL = 2
    RELEASE = 3
    LOSS = 4


class RunJob:
    """One job of a run: its claim with the lease behind it, and its outcome."""

    __slots__ = (
        "_job",
                "claim",
        "confirmed",
        "ended",
        "kill_requested",
        "lost",
        "outcome",
        "rules",
        "run",
        "services",
        "settlement",
        "slot",
    )  # fmt: skip

    #: The run of the job. None once the outcome is recorded: a cycle would be left to the garbage collector.
    run: Run | None
    outcome: Outcome
    #: The settlement that records the outcome.
    settlement: Settlement

    def __init__(self, claim: Claim, options: HandlerOptions, services: JobServices, confirmed: float = 0.0) -> None:
        self.claim = claim
        self.rules = options if not claim.bounds else rules_for(options, JobBounds.decode(claim.bounds))
        #: When the storage last confirmed the lease (monotonic).
        self.confirmed = confirmed
        self.ended = False
        self.lost = False
        self.kill_requested = False
        #: The slot of the claim table that a child process shares with its supervisor; -1 without one.
        self.slot = -1
        #: The services of its worker.
        self.services = services
        self._job: Job | None = None

    @property
    def job(self) -> Job:
        """The job as its handler sees it."""
        if self._job is None:
            run = self.run
            plain = run is not None and not run.handler.signature.is_async
            self._job = (PlainJob if plain else Job)(self.claim, self.services, self)
        return self._job

    def should_pause(self) -> bool:
        """Return whether a long run should end soon: its worker stops, or half of its timeout is over."""
        if self.services.stopping():
            return True
        run = self.run
        if run is None or run.deadline is None or run.timeout is None:
            return False
        return self.services.now() > run.deadline - run.timeout / 2

    @property
    def cancelled(self) -> bool:
        """Whether a cancel request has reached the handler."""
        return self._job is not None and bool(self._job.cancelled)

    @property
    def durable(self) -> Durable | None:
        """The journal that the run has used, or None."""
        return None if self._job is None else self._job.durable

    @property
    def suspension(self) -> Suspension | None:
        """The suspension that a durable call has raised, or None."""
        return None if self.durable is None else self.durable.suspension

    @property
    def follow_ups(self) -> tuple[NewJob, ...]:
        """The jobs that exist if this one completes."""
        return () if self._job is None else tuple(self._job.follow_ups)

    @property
    def ref(self) -> ClaimRef:
        """The claim as the storage names it."""
        return ClaimRef(self.claim.queue, self.claim.id, self.claim.token)


class Run:
    """One call of a handler: its jobs, its timeout, and the reason if it was interrupted."""

    __slots__ = (
        "began", "deadline", "handler", "interruption", "jobs", "task", "timeout", "took", "units", "waits_since",
    )  # fmt: skip

    def __init__(self, handler: Handler, jobs: Sequence[RunJob], units: int) -> None:
        self.handler = handler
        self.jobs = jobs
        self.units = units
        #: The seconds that the run may take, None without a bound.
        self.timeout = jobs[0].rules.timeout if len(jobs) == 1 else timeout_of(jobs)
        #: When it began to wait for units, if there were none, and when it began to run (monotonic).
        self.waits_since = self.began = 0.0
        #: How long it took (seconds).
        self.took = 0.0
        self.deadline: float | None = None
        self.interruption: Interruption | None = None
        self.task: asyncio.Task[None] | None = None
        for job in jobs:
            job.run = self


class SettleFlow(Protocol):
    """The owner of a `Settler`: a worker's runtime, or the supervisor."""

    def settle_soon(self) -> None:
        """Wake the settler: it has outcomes to record."""
        ...

    def settled(self, jobs: Sequence[RunJob]) -> None:
        """Drop the claims of these jobs: their outcomes are recorded."""
        ...

    def all_settled(self) -> None:
        """Note that no outcome is left to record."""
        ...


class RunFlow(SettleFlow, Protocol):
    """The steps of a run, in order, as the parts of a worker announce them to its `WorkerRuntime`."""

    #: Whether the process may be killed and replaced for the sake of a run that does not end.
    replaceable: bool

    def claimed(self, handler: Handler, batches: Sequence[Sequence[Claim]], units: int, asked: float) -> None:
        """Make runs of claims and hand them to the pool; `asked` is when the claim was sent."""
        ...

    def tick_at(self, at: int, now: int | None) -> None:
        """Take note of the next tick (ms) of the queues that were claimed from; `now` is the storage's time (ms)."""
        ...

    def limited(self, queues: Sequence[str]) -> None:
        """Take note of the queues that were claimed from and have limits."""
        ...

    def started(self, run: Run) -> None:
        """Note that the handler is about to be called."""
        ...

    def fence(self, run: Run, now: float) -> None:
        """Interrupt a run that is about to begin, unless the leases of all its jobs are confirmed at this time."""
        ...

    def ended(self, run: Run, outcomes: list[Outcome]) -> None:
        """Hand the outcomes of a run to the settler."""
        ...

    def lost(self, job: RunJob) -> None:
        """Interrupt the run of a job whose lease is lost, unless other jobs of the run are still held."""
        ...

    def interrupt(self, run: Run, why: Interruption) -> None:
        """Make a run end."""
        ...

    def stuck(self, run: Run) -> None:
        """Have the process replaced for a run that does not end; only called where it is `replaceable`."""
        ...

    def watch(self, due: float) -> None:
        """Look at deadlines and leases at this time (monotonic) at the latest."""
        ...

    def room(self) -> float:
        """Return how many more jobs the worker may hold."""
        ...

    def everything_settled(self) -> bool:
        """Return whether every outcome is recorded."""
        ...


def timeout_of(jobs: Sequence[RunJob]) -> float | None:
    """Return the seconds that the run of several jobs may take: the sum of their timeouts."""
    total = 0.0
    for job in jobs:
        if job.rules.timeout is None:
            return None
        total += job.rules.timeout
    return total


def units_of(handler: Handler) -> int:
    """Return the units that one run of a handler holds: none with `concurrency=n`, which is a limit of its own."""
    return handler.options.size if handler.options.concurrency is None else 0


def slots_of(handlers: Iterable[Handler]) -> dict[str, int]:
    """Return how many runs each queue with `concurrency=n` may have."""
    return {handler.queue: n for handler in handlers if (n := handler.options.concurrency) is not None}
