"""The ledger: the promises of the queue, checked from the calls and answers of the storage alone.

It knows no code of a storage. Each claim, settlement, renewal and reap is compared with the calls before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import QueueFull
from penstock.model.job import FINISHED, Claim, State
from penstock.storage.base import (
    MAX_BYTES,
    Cancel,
    Claimed,
    ClaimRef,
    Complete,
    EventRecord,
    Fail,
    Page,
    PutStatus,
    Reaped,
    Release,
    Renewal,
    Report,
    Reported,
    Retried,
    Settled,
    Settlement,
    Stall,
)
from penstock.storage.scheduling import Fired, Firing, ScheduleRecord
from penstock.testing.simulation.network import Request
from sim.limit_checks import LimitChecks
from sim.queues import BOUNDS, FAIL_QUEUES, HEAVY_QUEUE, IN_ORDER, NOT_UPDATED
from sim.schedule_checks import ScheduleChecks
from sim.violation import Violation

__all__ = ["Ledger", "LiveClaim"]

Key = tuple[str, str]

#: The most calls of one node in ten virtual seconds: more is a busy loop.
MAX_CALLS = 3_000

#: The most bytes of a report of progress: its message has at most 1000 characters.
MAX_PROGRESS = 1_200

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
        self.limits = LimitChecks(self.fault, clock_ms, self.live)
        self.schedules = ScheduleChecks(self.fault, clock_ms)
        self._checks: dict[str, list[Callable[..., None]]] = {}
        #: When the retry of a job is due.
        self._due: dict[Key, int] = {}
        self._settled: dict[tuple[str, str, str], tuple[type, State]] = {}
        self._line: dict[tuple[str, str], list[str]] = {}
        self._open_jobs: Counter[Key] = Counter()
        self._ends: Counter[Key] = Counter()
        self._fails: Counter[str] = Counter()
        self._calls: Counter[str] = Counter()
        self._window = 0.0
        #: The latest time that the storage's clock has shown.
        self._latest = 0
        #: Whether it was ever set back.
        self._set_back = False

    def fault(self, text: str, *jobs: Key) -> None:
        """Record a broken promise."""
        self.violations.append(Violation(self._now(), text, jobs))

    def running(self) -> dict[Key, str]:
        """Return the jobs with a live claim, and its token."""
        return {key: live.claim.token for key, live in self.live.items()}

    def observe(self, request: Request, answer: Any) -> None:
        """Check one call and its answer."""
        self._count_call(request)
        ms = self._ms()
        self._set_back = self._set_back or ms < self._latest
        self._latest = max(self._latest, ms)
        self.limits.observe_clock()
        self.schedules.observe_clock()
        if isinstance(answer, Exception):
            if not isinstance(answer, ValueError | QueueFull):
                self.fault(f"{request.verb} raised {answer!r}")
            return
        for check in self._checks_of(request.verb):
            check(answer, *request.args)

    def _checks_of(self, verb: str) -> list[Callable[..., None]]:
        """Return the checks of the calls of a verb: those of the ledger itself, of limits, and of schedules."""
        if verb not in self._checks:
            found = (
                getattr(self, f"_on_{verb}", None),
                *(getattr(part, f"on_{verb}", None) for part in (self.limits, self.schedules)),
            )
            self._checks[verb] = [check for check in found if check is not None]
        return self._checks[verb]

    def _count_call(self, request: Request) -> None:
        now = self._now()
        if now - self._window > 10:
            self._window = now
            self._calls.clear()
        self._calls[request.node.name] += 1
        if self._calls[request.node.name] == MAX_CALLS:
            self.fault(f"busy loop: {request.node.name} makes {MAX_CALLS} calls within 10 s, the last {request.verb}")

    # put ------------------------------------------------------------------------------------------

    def _on_put(self, answers: Sequence[Any], jobs: Sequence[Any], max_queued: int | None = None) -> None:
        for new, put in zip(jobs, answers, strict=True):
            key = new.queue, new.id
            if put.status in (PutStatus.QUEUED, PutStatus.SCHEDULED):
                self._accepted(new)
            elif put.status in (PutStatus.UPDATED, PutStatus.BLOCKED):
                self._counts.setdefault(key, Counts()).uncertain = True
            if new.queue in BOUNDS and max_queued != BOUNDS[new.queue]:
                self.fault(f"a put into a queue with a bound has {max_queued}, not {BOUNDS[new.queue]}", key)
            if new.queue == "by key" and (wanted := json.loads(new.payload)["want"]) != [new.id, new.group, new.cost]:
                self.fault(f"a put has not the keys of its payload: {[new.id, new.group, new.cost]}, not {wanted}", key)
            if put.status is PutStatus.COMPLETED and put.state is not State.COMPLETED:
                self.fault(f"a put answers completed for a job that is {put.state}", key)

    def _on_fire(self, answers: Sequence[Fired], firings: Sequence[Firing]) -> None:
        for firing, fired in zip(firings, answers, strict=True):
            for tick in firing.ticks:
                if tick.job.id in fired.ids:
                    self._accepted(tick.job)

    def _on_set_schedule(
        self, answer: int | None, record: ScheduleRecord, version: int, firing: Firing | None = None
    ) -> None:
        if firing is None or answer is None:
            return
        for tick in firing.ticks:
            self._counts.setdefault((firing.queue, tick.job.id), Counts()).uncertain = True

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
            self.live[claim.queue, claim.id] = LiveClaim(claim, worker, self._ms() + lease, self._now())
            taken[claim.queue, claim.batch] += 1
        for request in requests:
            runs = [count for (queue, _), count in taken.items() if queue == request.queue]
            if len(runs) > request.limit or max(runs, default=0) > request.batch:
                self.fault(f"a claim gives more than was asked for: {runs} of {request}")
        self._check_bytes("claim", answer.claims)
        self.limits.check_claims(answer.claims)

    def _check_claim(self, claim: Claim) -> None:
        key, held = (claim.queue, claim.id), self.live.get((claim.queue, claim.id))
        if held is not None:
            self.fault(f"two live claims of one job: {held.worker} has it", key)
        if self.limits.is_paused(claim.queue):
            self.fault("a job of a paused queue was claimed", key)
        if claim.run_at > self._latest:  # a job that was due stays so if the clock is set back
            self.fault(f"a job was claimed {claim.run_at - self._latest} ms before its time", key)
        if claim.group is not None:
            self._check_group(claim, claim.group, key)
        expected = self._counts.setdefault(key, Counts())
        expected.attempts += 1
        found = (claim.attempts, claim.retries, claim.stalls, claim.timeouts)
        wanted = (expected.attempts, expected.retries, expected.stalls, expected.timeouts)
        if expected.uncertain:
            expected.attempts, expected.retries, expected.stalls, expected.timeouts = found
            expected.uncertain = False
        elif found != wanted:
            self.fault(f"a claim has other counts: attempts, retries, stalls, timeouts are {found}, not {wanted}", key)

    def _check_group(self, claim: Claim, group: str, key: Key) -> None:
        """Check that a group is not paused, and its order: jobs in backoff hold up an ordered group alone."""
        if self.limits.is_paused(claim.queue, group):
            self.fault(f"a job of a paused group was claimed: {group!r}", key)
        if claim.queue in IN_ORDER:
            line = self._line.get((claim.queue, group), [])
            before = [id for id in line[: line.index(claim.id)] if (claim.queue, id) not in self.live] if line else []
            if not self.limits.group_rule(claim.queue, group).ordered:
                before = [id for id in before if self._due.get((claim.queue, id), 0) <= self._ms()]
            if before:
                self.fault(f"group order: {before[0]!r} was accepted before and waits", key)

    def _check_bytes(self, verb: str, jobs: Sequence[Any]) -> None:
        """Check that the jobs of a queue end with the one that reaches the bytes that a call may carry."""
        for queue in dict.fromkeys(job.queue for job in jobs):
            of_queue = [job for job in jobs if job.queue == queue]
            if sum(len(job.payload) for job in of_queue[:-1]) >= MAX_BYTES:
                self.fault(f"the answer to a {verb} has too many bytes", *[(queue, job.id) for job in of_queue])

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
        if isinstance(s.resolution, Retried) and answer.state is not State.CANCELLED:
            self._due[key] = self.limits.on_retried(s.queue, held.claim.group, s.resolution)
        elif answer.state is not State.COMPLETED:
            self.limits.free_window(key)
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
                self.limits.free_window(key)
        asked = [queue for queue in queues if queue != HEAVY_QUEUE]  # of that one a call takes some
        late = [key for key, live in self.live.items() if live.until <= self._ms() and key[0] in asked]
        if late and len(answers) < limit:
            self.fault("a job whose lease is over was not reaped", late[0])

    # the rest -------------------------------------------------------------------------------------

    def _on_find(self, answer: Page, queue: str, *rest: Any) -> None:
        self._check_bytes("find", answer.jobs)
        begun = [self.live[queue, job.id].at for job in answer.jobs if job.state is State.RUNNING]
        if not self._set_back and begun != sorted(begun):
            self.fault("running jobs are not listed by the begin of their runs", *[(queue, j.id) for j in answer.jobs])

    def _on_report(self, answers: Sequence[Reported], reports: Sequence[Report]) -> None:
        for report, answer in zip(reports, answers, strict=True):
            key, size = (report.queue, report.id), len(report.progress or b"")
            if size > MAX_PROGRESS:
                self.fault(f"a report of progress has {size} bytes", key)
            live = self.live.get(key)
            if answer.kept and (live is None or live.claim.token != report.token):
                self.fault("a report of a run without a live claim was kept", key)

    def _on_cancel(self, answers: Sequence[Any], queue: str, ids: Sequence[str], *rest: Any) -> None:
        for id, answer in zip(ids, answers, strict=True):
            if answer.status == "cancelled" and not answer.running and not answer.already:
                self._forget((queue, id))
                self.limits.free_window((queue, id))

    def _on_discard(self, answers: Sequence[str], queue: str, ids: Sequence[str], *rest: Any) -> None:
        for id, answer in zip(ids, answers, strict=True):
            if answer in ("cancelled", "discarded") and (queue, id) not in self.live:
                self._forget((queue, id))
                self.limits.free_window((queue, id))

    def _on_revive(self, answers: Sequence[bool], queue: str, ids: Sequence[str], completed: bool = False) -> None:
        for id, revived in zip(ids, answers, strict=True):
            if revived:
                self._counts[queue, id] = Counts()
                self.limits.free_window((queue, id))
                if queue in IN_ORDER:
                    self.fault(f"a job of {queue!r} was revived, which the work never asks for", (queue, id))

    def _on_delete_queue(self, answer: int, queue: str, settings: bool = False) -> None:
        for key in [key for key in self.live if key[0] == queue]:
            self._end_claim(key)
        for key in [key for key in self._counts if key[0] == queue]:
            self._counts[key] = Counts(uncertain=True)
        for key in [key for key in self._open_jobs if key[0] == queue]:
            del self._open_jobs[key]

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

    def check_end(self, fail_jobs: Counter[str] | None) -> None:
        """Check what must hold when all jobs have ended; None as the fail jobs if events are not known."""
        for key in self.live:
            self.fault("a claim is live after everything has ended", key)
        for key, count in self._open_jobs.items():
            if count > 0 and key[0] in NOT_UPDATED:
                self.fault("a job was accepted and has never ended", key)
        if fail_jobs is None:
            return
        for key in sorted(self.schedules.put):
            if not self._ends[key]:
                self.fault("the job of a tick has never ended", key)
        for queue, fail_queue in FAIL_QUEUES.items():
            if self._fails[queue] != fail_jobs[fail_queue]:
                self.fault(f"{self._fails[queue]} jobs of {queue} failed, and {fail_jobs[fail_queue]} fail jobs exist")
