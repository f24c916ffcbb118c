"""Settling the claims that a dead child held."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.errors import StorageError
from penstock.host import AppHost
from penstock.model.context import Progress
from penstock.model.handler import Handler
from penstock.model.history import LogLevel
from penstock.model.job import Claim, NewJob, Snapshot, State
from penstock.model.outcome import Outcome, Released, Stalled, Stopped, timed_out
from penstock.model.source import source
from penstock.worker.run import Interruption, Run, RunJob
from penstock.worker.settler import Settler
from penstock.worker.supervisor.child_handle import ChildHandle
from penstock.worker.supervisor.claim_table import Phase, Slot
from penstock.worker.supervisor.stacks import describe

__all__ = ["CrashRecovery"]

log = logging.getLogger("penstock.worker")

#: How often the last stall of a job is not counted, because its process died while other runs were under way.
SPARED = 3


class OrphanedClaim(NamedTuple):
    """A claim whose child process died. `why` None means that the supervisor did not kill it."""

    slot: Slot
    why: Interruption | None
    #: Whether other jobs were in the same run.
    shared: bool
    #: Whether other runs were under way in the process, any of which may have killed it.
    beside_others: bool
    #: How the process ended, and the stack of the run as lines.
    death: str = ""
    stack: Sequence[str] = ()


class ClosedServices:
    """The services of a run that is over: it reports no progress and puts no jobs."""

    #: The id of the worker.
    worker = ""

    def report(self, claim: Claim, progress: Progress) -> Awaitable[bool]:
        """Refuse to report progress."""
        raise AssertionError("the run is over")

    def log(self, claim: Claim, text: str, level: LogLevel) -> None:
        """Refuse to log."""
        raise AssertionError("the run is over")

    def emit(self, claim: Claim, value: Any) -> Awaitable[bool]:
        """Refuse to emit."""
        raise AssertionError("the run is over")

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        """Refuse to build a follow-up job."""
        raise AssertionError("the run is over")

    def stopping(self) -> bool:
        """Return that it does not matter."""
        return False

    def now(self) -> float:
        """Refuse to return the time."""
        raise AssertionError("the run is over")


class CrashRecovery:
    """Settles the claims of dead children.

    A run that the child was killed for has timed out or is cancelled; other runs of a killed child are
    released; the runs of a child that died by itself have stalled.
    """

    def __init__(self, host: AppHost, handlers: Mapping[str, Handler], lease: float, settler: Settler) -> None:
        self._host = host
        self._handlers = handlers
        self._lease = lease
        self._settler = settler
        self._orphans: deque[OrphanedClaim] = deque()
        #: How often jobs were spared their last stall.
        self._spared: Counter[tuple[str, str]] = Counter()

    @property
    def busy(self) -> bool:
        """Whether claims of dead children are not settled yet."""
        return bool(self._orphans) or self._settler.busy

    def add(self, child: ChildHandle, slots: Sequence[Slot], worker: str) -> None:
        """Take over the claims of a dead child; those with a lost lease are not settled, only emitted."""
        runs = Counter(run_of(slot) for slot in slots)
        running = {run_of(slot) for slot in slots if slot.phase is Phase.RUNNING}
        for slot in slots:
            why = reason_of(child, slot)
            if why is Interruption.LOSS:
                ref = slot.ref
                self._host.emit("lease_lost", queue=ref.queue, id=ref.id, attempt=slot.attempt, worker=worker)
            else:
                stack = self._stack_of(child, slot) if why is Interruption.TIMEOUT else ()
                self._orphans.append(
                    OrphanedClaim(slot, why, runs[run_of(slot)] > 1, len(running) > 1, child.death, stack)
                )

    def _stack_of(self, child: ChildHandle, slot: Slot) -> Sequence[str]:
        """Return the stack of a run that did not end, for the record of its error."""
        handler = self._handlers.get(slot.ref.queue)
        function = handler.function if handler is not None and handler.loaded else None
        return describe(child.stacks, (slot.ref.queue, slot.ref.id), function)

    async def step(self) -> float | None:
        """Hand the orphaned claims to the settler, except those whose lease has expired meanwhile."""
        while self._orphans:
            orphan = self._orphans[0]
            if orphan.slot.confirmed + self._lease > source.monotonic():
                try:
                    await self._settle(orphan)
                except StorageError:
                    raise  # it is tried again
                except Exception:  # its lease expires; the claims behind it go on
                    log.exception("job %r of a dead process could not be given back", orphan.slot.ref.id)
            self._orphans.popleft()
        return None

    async def _settle(self, orphan: OrphanedClaim) -> None:
        """Settle one claim; the job of a timed-out or killed run is read again first, for its counters and payload."""
        slot, ref = orphan.slot, orphan.slot.ref
        handler = self._handlers.get(ref.queue)
        if handler is None:
            return  # this worker does not serve the queue any more: the lease expires
        claim = Claim(queue=ref.queue, id=ref.id, token=ref.token, payload=b"", attempts=slot.attempt)
        if orphan.why in (Interruption.TIMEOUT, Interruption.KILL):
            snapshot = (await self._host.storage.get(ref.queue, [ref.id]))[0]
            if snapshot is None or snapshot.state is not State.RUNNING:
                return
            claim = claim_of(snapshot, ref.token)
        outcome = outcome_of(orphan, handler)
        if isinstance(outcome, Stalled) and orphan.beside_others and await self._is_spared(orphan, handler):
            outcome = Released()
        self._settler.add(Run(handler, [RunJob(claim, handler.options, ClosedServices())], 0), [outcome])

    async def _is_spared(self, orphan: OrphanedClaim, handler: Handler) -> bool:
        """Return whether a job is released although its process died: one more stall would fail it for good.

        It was to run alone, but its process was not empty in time. A few times another run may be to blame.
        """
        ref, limit = orphan.slot.ref, handler.options.max_stalls
        if orphan.slot.phase is not Phase.RUNNING or handler.options.at_most_once or limit is None:
            return False
        snapshot = (await self._host.storage.get(ref.queue, [ref.id]))[0]
        if snapshot is None or not 0 < snapshot.stalls == limit - 1:
            return False
        key = ref.queue, ref.id
        self._spared[key] += 1
        if self._spared[key] <= SPARED:
            return True
        del self._spared[key]
        return False


def reason_of(child: ChildHandle, slot: Slot) -> Interruption | None:
    """Return why a claim lost its process, None if the child died by itself. A run that had not begun is released."""
    if child.fenced or slot.interruption is Interruption.LOSS:
        return Interruption.LOSS
    if slot.phase is Phase.HELD:
        return Interruption.RELEASE
    if slot.key in child.killed_for:
        return child.killed_for[slot.key]
    return Interruption.RELEASE if child.killed else None


def run_of(slot: Slot) -> tuple[str, float, float]:
    """Return a key that the claims of one batch share: their queue, when they began and when they must end."""
    return slot.ref.queue, slot.begun, slot.deadline


def outcome_of(orphan: OrphanedClaim, handler: Handler) -> Outcome:
    """Return the outcome of a run whose process is dead."""
    match orphan.why:
        case Interruption.TIMEOUT:
            shared = handler.batch and orphan.shared
            return timed_out(orphan.slot.timeout, handler.batch, shared, "\n".join(orphan.stack))
        case Interruption.KILL:
            return Stopped()
        case Interruption.RELEASE:
            return Released()
        case _:
            return Stalled(orphan.death)


def claim_of(job: Snapshot, token: str) -> Claim:
    """Build a job's claim from its record."""
    return Claim(
        queue=job.queue, id=job.id, token=token, payload=job.payload, group=job.group, priority=job.priority,
        headers=job.headers, bounds=job.bounds, created=job.created, run_at=job.run_at, attempts=job.attempts,
        retries=job.retries, stalls=job.stalls, timeouts=job.timeouts,
    )  # fmt: skip
