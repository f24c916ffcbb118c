"""What becomes of the claims that a dead child held."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, NamedTuple

from penstock.host import AppHost
from penstock.model.context import Progress
from penstock.model.handler import Handler
from penstock.model.job import Claim, NewJob, Snapshot, State
from penstock.model.outcome import Outcome, Released, Stalled, Stopped, timed_out
from penstock.worker.run import Run, RunJob
from penstock.worker.settler import Settler
from penstock.worker.supervisor.child_handle import ChildHandle
from penstock.worker.supervisor.claim_table import Phase, Slot, Verdict

__all__ = ["CrashRecovery"]


class OrphanedClaim(NamedTuple):
    """A claim without a process, and why it has none: None is a process that died by itself."""

    slot: Slot
    verdict: Verdict | None
    #: Whether it ran together with others.
    shared: bool


class ClosedServices:
    """The desk of a run that has nothing more to say."""

    def report(self, claim: Claim, progress: Progress) -> Awaitable[bool]:
        raise AssertionError("the run is over")

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        raise AssertionError("the run is over")


class CrashRecovery:
    """Settles what dead children held: timeouts as such, the innocent as released, crashes as stalls."""

    def __init__(self, host: AppHost, handlers: Mapping[str, Handler], lease: float, settler: Settler) -> None:
        self._host = host
        self._handlers = handlers
        self._lease = lease
        self._settler = settler
        self._orphans: deque[OrphanedClaim] = deque()

    @property
    def busy(self) -> bool:
        return bool(self._orphans) or self._settler.busy

    def add(self, hand: ChildHandle, slots: Sequence[Slot], worker: str) -> None:
        """Take over the claims of a dead child; of those whose lease is lost nothing is reported."""
        runs = Counter(run_of(slot) for slot in slots)
        for slot in slots:
            verdict = verdict_on(hand, slot)
            if verdict is Verdict.LOSS:
                held = slot.ref
                self._host.emit("lease_lost", queue=held.queue, id=held.id, attempt=slot.attempt, worker=worker)
            else:
                self._orphans.append(OrphanedClaim(slot, verdict, runs[run_of(slot)] > 1))

    async def step(self) -> float | None:
        """Hand what is left to the settler; a run out of time is read again first, for its counts and payload."""
        while self._orphans:
            left = self._orphans[0]
            if left.slot.confirmed + self._lease > time.monotonic():
                await self._settle(left)
            self._orphans.popleft()
        return None

    async def _settle(self, left: OrphanedClaim) -> None:
        slot, held = left.slot, left.slot.ref
        handler = self._handlers.get(held.queue)
        if handler is None:
            return  # somebody else's queue by now: the lease runs out
        claim = Claim(queue=held.queue, id=held.id, token=held.token, payload=b"", attempts=slot.attempt)
        if left.verdict in (Verdict.TIMEOUT, Verdict.KILL):
            snapshot = (await self._host.storage.get(held.queue, [held.id]))[0]
            if snapshot is None or snapshot.state is not State.RUNNING:
                return
            claim = claim_of(snapshot, held.token)
        run = Run(handler, [RunJob(claim, handler.options, ClosedServices())], 0)
        self._settler.add(run, [outcome_of(left, handler)])


def verdict_on(hand: ChildHandle, slot: Slot) -> Verdict | None:
    """Why a claim lost its process. A run that had not begun is innocent of anything."""
    if hand.fenced or slot.verdict is Verdict.LOSS:
        return Verdict.LOSS
    if slot.phase is Phase.HELD:
        return Verdict.RELEASE
    if slot.key in hand.killed_for:
        return hand.killed_for[slot.key]
    return Verdict.RELEASE if hand.killed else None


def run_of(slot: Slot) -> tuple[str, float, float]:
    """What the claims of one batch have in common: their queue, when they began and when they must end."""
    return slot.ref.queue, slot.begun, slot.deadline


def outcome_of(left: OrphanedClaim, handler: Handler) -> Outcome:
    match left.verdict:
        case Verdict.TIMEOUT:
            return timed_out(left.slot.timeout, solo=handler.batch, shared=handler.batch and left.shared)
        case Verdict.KILL:
            return Stopped()
        case Verdict.RELEASE:
            return Released()
        case _:
            return Stalled()


def claim_of(job: Snapshot, token: str) -> Claim:
    """The claim again, from the job's record."""
    return Claim(
        queue=job.queue, id=job.id, token=token, payload=job.payload, group=job.group, priority=job.priority,
        headers=job.headers, limits=job.limits, created=job.created, run_at=job.run_at, attempts=job.attempts,
        retries=job.retries, stalls=job.stalls, timeouts=job.timeouts,
    )  # fmt: skip
