"""The ledger: the promises of the queue, checked from the calls and answers of the storage alone.

It knows no code of a storage. Each claim, settlement, renewal and reap is compared with the calls before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.model.job import FINISHED, Claim, State
from penstock.storage.base import (
    Cancel,
    Claimed,
    ClaimRef,
    Complete,
    EventRecord,
    Fail,
    PutStatus,
    Reaped,
    Release,
    Renewal,
    Retried,
    Settled,
    Settlement,
    Stall,
)
from penstock.testing.simulation.network import Request
from sim.queues import FAIL_QUEUES, IN_ORDER
from sim.violation import Violation

__all__ = ["Ledger", "LiveClaim"]

Key = tuple[str, str]

#: The most calls of one node in ten virtual seconds: more is a busy loop.
MAX_CALLS = 3_000

#: The states to which a resolution may lead.
LEADS_TO: dict[type, frozenset[State]] = {
    Complete: frozenset({State.COMPLETED}),
    Fail: frozenset({State.FAILED, State.CANCELLED}),
    Cancel: frozenset({State.CANCELLED}),
    Retried: frozenset({State.RETRYING, State.QUEUED, State.SCHEDULED, State.CANCELLED}),
    Release: frozenset({State.QUEUED, State.SCHEDULED, State.CANCELLED}),
    Stall: frozenset({State.QUEUED, State.SCHEDULED, State.CANCELLED}),
}


@dataclass
class LiveClaim:
    """A claim that was given and not yet ended."""

    claim: Claim
    worker: str
    until: int
    #: The virtual time of the claim.
    at: float


@dataclass
class Counts:
    """The counts that the next claim of a job must show."""

    attempts: int = 0
    retries: int = 0
    stalls: int = 0
    timeouts: int = 0
    #: Whether an update may have reset them.
    uncertain: bool = False


class Ledger:
    """Observes the calls of a run and records the promises that are broken."""

    def __init__(self, now: Callable[[], float], clock_ms: Callable[[], int]) -> None:
        self.violations: list[Violation] = []
        #: The live claim of each job.
        self.live: dict[Key, LiveClaim] = {}
        #: The virtual time at which the claim of a token ended, by token and job.
        self.over: dict[tuple[str, str, str], float] = {}
        self._now, self._ms = now, clock_ms
        self._counts: dict[Key, Counts] = {}
        self._paused: set[str] = set()
        self._settled: dict[tuple[str, str, str], tuple[type, State]] = {}
        self._line: dict[tuple[str, str], list[str]] = {}
        self._open_jobs: Counter[Key] = Counter()
        self._ends: Counter[Key] = Counter()
        self._fails: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._window = 0.0
        #: The latest time that the storage's clock has shown.
        self._latest = 0

    def fault(self, text: str, *jobs: Key) -> None:
        """Record a broken promise."""
        self.violations.append(Violation(self._now(), text, jobs))

    def observe(self, request: Request, answer: Any) -> None:
        """Check one call and its answer."""
        self._count_call(request)
        self._latest = max(self._latest, self._ms())
        if isinstance(answer, Exception):
            if not isinstance(answer, ValueError):
                self.fault(f"{request.verb} raised {answer!r}")
            return
        check = getattr(self, f"_on_{request.verb}", None)
        if check is not None:
            check(answer, *request.args)

    def _count_call(self, request: Request) -> None:
        now = self._now()
        if now - self._window > 10:
            self._window = now
            self._calls.clear()
        self._calls[request.node.name] += 1
        if self._calls[request.node.name] == MAX_CALLS:
            self.fault(f"busy loop: {request.node.name} makes {MAX_CALLS} calls within 10 s, the last {request.verb}")

    # put ------------------------------------------------------------------------------------------

    def _on_put(self, answers: Sequence[Any], jobs: Sequence[Any]) -> None:
        for new, put in zip(jobs, answers, strict=True):
            key = new.queue, new.id
            if put.status in (PutStatus.QUEUED, PutStatus.SCHEDULED):
                self._accepted(new)
            elif put.status in (PutStatus.UPDATED, PutStatus.BLOCKED):
                self._counts.setdefault(key, Counts()).uncertain = True
            if put.status is PutStatus.COMPLETED and put.state is not State.COMPLETED:
                self.fault(f"a put answers completed for a job that is {put.state}", key)

    def _accepted(self, new: Any) -> None:
        key = new.queue, new.id
        if key in self.live:
            self.fault("a new job was accepted in place of a running one", key)
        self._counts[key] = Counts()
        if new.queue in IN_ORDER:
            self._line.setdefault((new.queue, new.group or ""), []).append(new.id)

    # claim ----------------------------------------------------------------------------------------

    def _on_claim(self, answer: Claimed, requests: Sequence[Any], worker: str, lease: int, token: str) -> None:
        taken: Counter[tuple[str, int]] = Counter()
        for claim in answer.claims:
            self._check_claim(claim)
            taken[claim.queue, claim.batch] += 1
        for request in requests:
            runs = [count for (queue, _), count in taken.items() if queue == request.queue]
            if len(runs) > request.limit or max(runs, default=0) > request.batch:
                self.fault(f"a claim gives more than was asked for: {runs} of {request}")
        for claim in answer.claims:
            self.live[claim.queue, claim.id] = LiveClaim(claim, worker, self._ms() + lease, self._now())

    def _check_claim(self, claim: Claim) -> None:
        key, held = (claim.queue, claim.id), self.live.get((claim.queue, claim.id))
        if held is not None:
            self.fault(f"two live claims of one job: {held.worker} has it", key)
        if claim.queue in self._paused:
            self.fault("a job of a paused queue was claimed", key)
        if claim.run_at > self._latest:  # a job that was due stays so if the clock is set back
            self.fault(f"a job was claimed {claim.run_at - self._latest} ms before its time", key)
        if claim.group is not None:
            self._check_group(claim, key)
        expected = self._counts.setdefault(key, Counts())
        expected.attempts += 1
        found = (claim.attempts, claim.retries, claim.stalls, claim.timeouts)
        wanted = (expected.attempts, expected.retries, expected.stalls, expected.timeouts)
        if expected.uncertain:
            expected.attempts, expected.retries, expected.stalls, expected.timeouts = found
            expected.uncertain = False
        elif found != wanted:
            self.fault(f"a claim has other counts: attempts, retries, stalls, timeouts are {found}, not {wanted}", key)

    def _check_group(self, claim: Claim, key: Key) -> None:
        for other in self.live.values():
            mine = other.claim
            if (mine.queue, mine.group) == (claim.queue, claim.group) and (
                mine.token != claim.token or mine.batch != claim.batch
            ):
                self.fault(f"two live claims of one group: {mine.id!r} runs too", key, (mine.queue, mine.id))
        if claim.queue in IN_ORDER:
            line = self._line.get((claim.queue, claim.group or ""), [])
            before = [id for id in line[: line.index(claim.id)] if (claim.queue, id) not in self.live] if line else []
            if before:
                self.fault(f"group order: {before[0]!r} was accepted before and waits", key)

    # settle ---------------------------------------------------------------------------------------

    def _on_settle(self, answers: Sequence[Settled], settlements: Sequence[Settlement]) -> None:
        for settlement, answer in zip(settlements, answers, strict=True):
            self._check_settled(settlement, answer)

    def _check_settled(self, s: Settlement, answer: Settled) -> None:
        key, mark = (s.queue, s.id), (s.queue, s.id, s.token)
        held = self.live.get(key)
        kind = type(s.resolution)
        if held is None or held.claim.token != s.token:
            before = self._settled.get(mark)
            if not answer.lost and (before is None or answer.state is None):
                self.fault(f"a stale write was accepted: {kind.__name__} led to {answer.state}", key)
            return
        if answer.lost or answer.state is None:
            self.fault(f"a live claim was answered lost: {kind.__name__}", key)
            return
        if answer.state not in LEADS_TO[kind]:
            self.fault(f"{kind.__name__} led to {answer.state}", key)
        self._settled[mark] = kind, answer.state
        self._end_claim(key)
        self._count_end(s, answer.state)

    def _count_end(self, s: Settlement, state: State) -> None:
        key, counts = (s.queue, s.id), self._counts.setdefault((s.queue, s.id), Counts())
        match s.resolution:
            case Release():
                counts.attempts -= 1
            case Stall():
                counts.stalls += 1
            case Retried(count=count):
                counts.retries += count == "retries"
                counts.timeouts += count == "timeouts"
            case _:
                pass
        if state in FINISHED:
            self._forget(key)
            if state is State.FAILED and s.queue in FAIL_QUEUES:
                self._fails[s.queue] += 1

    def _end_claim(self, key: Key) -> None:
        held = self.live.pop(key)
        self.over[key[0], key[1], held.claim.token] = self._now()

    def _forget(self, key: Key) -> None:
        """Note that a job has ended: the next claim of its id is of another one."""
        self._counts[key] = Counts(uncertain=True)
        for line in (self._line[each] for each in self._line if each[0] == key[0]):
            if key[1] in line:
                line.remove(key[1])

    # leases ---------------------------------------------------------------------------------------

    def _on_renew(self, answers: Sequence[Renewal], worker: str, held: Sequence[ClaimRef], lease: int) -> None:
        for ref, answer in zip(held, answers, strict=True):
            key = ref.queue, ref.id
            live = self.live.get(key)
            mine = live is not None and live.claim.token == ref.token
            if answer.kept and not mine:
                self.fault("a lost claim was renewed", key)
            elif mine and not answer.kept:
                self.fault("the renewal of a live claim was answered lost", key)
            elif live is not None and mine:
                live.until = self._ms() + lease

    def _on_reap(self, answers: Sequence[Reaped], queues: Sequence[str], limit: int = 1000) -> None:
        for reaped in answers:
            key = reaped.queue, reaped.id
            live = self.live.get(key)
            if live is None:
                self.fault("a job without a live claim was reaped", key)
                continue
            if live.until > self._ms():
                self.fault(f"a job was reaped {live.until - self._ms()} ms before its lease was over", key)
            self._end_claim(key)
            self._counts.setdefault(key, Counts()).stalls += 1
            if reaped.state is State.CANCELLED:
                self._forget(key)
        late = [key for key, live in self.live.items() if live.until <= self._ms() and key[0] in queues]
        if late and len(answers) < limit:
            self.fault("a job whose lease is over was not reaped", late[0])

    # the rest -------------------------------------------------------------------------------------

    def _on_set_paused(self, answer: bool, queue: str, paused: bool) -> None:
        if answer != (paused != (queue in self._paused)):
            self.fault(f"set_paused({queue!r}, {paused}) answers {answer}")
        (self._paused.add if paused else self._paused.discard)(queue)

    def _on_cancel(self, answers: Sequence[Any], queue: str, ids: Sequence[str], *rest: Any) -> None:
        for id, answer in zip(ids, answers, strict=True):
            if answer.status == "cancelled" and not answer.running and not answer.already:
                self._forget((queue, id))

    def _on_discard(self, answers: Sequence[str], queue: str, ids: Sequence[str], *rest: Any) -> None:
        for id, answer in zip(ids, answers, strict=True):
            if answer in ("cancelled", "discarded") and (queue, id) not in self.live:
                self._forget((queue, id))

    def _on_revive(self, answers: Sequence[bool], queue: str, ids: Sequence[str], completed: bool = False) -> None:
        for id, revived in zip(ids, answers, strict=True):
            if revived:
                self._counts[queue, id] = Counts()
                if queue in IN_ORDER:
                    self.fault(f"a job of {queue!r} was revived, which the work never asks for", (queue, id))

    def _on_delete_queue(self, answer: int, queue: str) -> None:
        for key in [key for key in self.live if key[0] == queue]:
            self._end_claim(key)
        for key in [key for key in self._counts if key[0] == queue]:
            self._counts[key] = Counts(uncertain=True)
        for key in [key for key in self._open_jobs if key[0] == queue]:
            del self._open_jobs[key]
        self._paused.discard(queue)

    # events ---------------------------------------------------------------------------------------

    def event(self, event: EventRecord) -> None:
        """Check an event that the storage recorded: no job ends more often than it was accepted."""
        key = event.queue, event.id
        if event.name == "enqueued":
            self._open_jobs[key] += 1
        elif event.name in ("completed", "failed", "cancelled"):
            self._open_jobs[key] -= 1
            self._ends[key] += 1
            if self._open_jobs[key] < 0:
                self.fault(f"two terminal events of one job, the second is {event.name}", key)

    def check_local_events(self, ends: Counter[Key]) -> None:
        """Check the terminal events that listeners got: at most one for each that the storage recorded."""
        for key, count in ends.items():
            if count > self._ends[key]:
                self.fault(f"listeners got {count} terminal events of a job, the storage has {self._ends[key]}", key)

    def check_end(self, fail_jobs: Counter[str]) -> None:
        """Check what must hold when all jobs have ended."""
        for key in self.live:
            self.fault("a claim is live after everything has ended", key)
        for queue, fail_queue in FAIL_QUEUES.items():
            if self._fails[queue] != fail_jobs[fail_queue]:
                self.fault(f"{self._fails[queue]} jobs of {queue} failed, and {fail_jobs[fail_queue]} fail jobs exist")
