"""The runs of handlers, checked while they happen: capacity, second runs, and runs after their lease."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field

from penstock import Job
from penstock.model.outcome import Cancel, Complete, Fail, Retried
from penstock.testing.simulation.faults import Faults
from penstock.testing.simulation.history import History
from penstock.testing.simulation.loop import Node
from penstock.testing.simulation.network import Request
from sim.behaviours import STUBBORN, is_child
from sim.ledger import Ledger
from sim.queues import timeout_of, units_of

__all__ = ["Run", "Runs"]

#: How long (seconds) a run may go on after its claim ended: a worker gives its leases up before the storage does.
GRACE = 0.2

#: How long (seconds) after its timeout a run of a child process must have been killed: the other runs may end first.
KILLED_WITHIN = 40.0

#: The jumps of the storage's clock that end leases too early, and the part by which a clock of a node may be wrong.
JUMPS, DRIFT = ("jump_forward", "long_jump"), 0.02

#: The outcomes of a run that ends by itself, by its behaviour; of most behaviours it is complete.
FAILS, RETRIES = (Fail, Cancel), (Retried, Fail, Cancel)
OUTCOMES: dict[str, tuple[type, ...]] = {
    "permanent": FAILS, "large": FAILS, "raise": RETRIES, "retry": RETRIES, "hold": RETRIES, "odd": RETRIES,
    "cancel itself": RETRIES, "lookup": RETRIES, "refused": FAILS,
}  # fmt: skip

#: Text of the error of a job whose own outcome could not be recorded.
UNRECORDABLE = b"cannot be recorded"

#: Behaviours whose outcome depends on more.
UNKNOWN = frozenset({"obey", "failure", *STUBBORN})


@dataclass
class Run:
    """A call of a handler."""

    number: int
    node: Node
    jobs: list[tuple[str, str, str]]
    behaviour: str
    began: float
    units: int
    keys: list[tuple[str, str]] = field(default_factory=list)
    #: How many reports its process had sent when it ended.
    reports: int = 0

    @property
    def name(self) -> str:
        """The jobs of the run."""
        return ", ".join(f"{queue}/{id}" for queue, id in self.keys)

    @property
    def stubborn(self) -> bool:
        """Whether it does not end when it is cancelled."""
        return self.behaviour in STUBBORN or self.behaviour.startswith("plain")


class Runs:
    """The runs under way, and the number of runs so far."""

    def __init__(self, ledger: Ledger, faults: Faults, history: History, lease: float, capacity: int) -> None:
        self._ledger = ledger
        self._faults = faults
        self._history = history
        self._lease = lease
        self._capacity = capacity
        #: The runs that have ended by themselves, by queue, id and token.
        self._over: dict[tuple[str, str, str], Run] = {}
        self._live: dict[int, Run] = {}
        self.count = 0
        self.behaviours: Counter[str] = Counter()

    def began(self, node: Node, jobs: list[Job], behaviour: str) -> int:
        """Note and check the beginning of a run; returns its number."""
        self.count += 1
        self.behaviours[behaviour] += 1
        now = node.scheduler.now
        held = [(job.queue, job.id, job.fence) for job in jobs]
        run = Run(self.count, node, held, behaviour, now, units_of(jobs[0].queue), [(j.queue, j.id) for j in jobs])
        self._history.add(node.name, "run", f"{run.name} {behaviour}")
        self._check_lease(run)
        self._check_alone(run)
        self._check_task(run)
        self._live[run.number] = run
        self._check_capacity(run)
        return run.number

    def ended(self, number: int, by_itself: bool = False) -> None:
        """Note the end of a run: it must not have gone on for long after its claim ended."""
        run = self._live.pop(number)
        now = run.node.scheduler.now
        self._history.add(run.node.name, "ran", f"{run.name} {run.behaviour}")
        if by_itself and len(run.jobs) == 1 and run.behaviour not in UNKNOWN and not self._stood_still(run, run.began):
            run.reports = run.node.calls["report"]
            self._over[run.jobs[0]] = run
        self._check_killed(run, now)
        if run.stubborn or run.node.dead or run.keys[0][0] == "temp":
            return
        ends = [self._ledger.over.get(held) for held in run.jobs]
        if all(end is not None for end in ends):
            last = max(end for end in ends if end is not None)
            if now - max(last, run.began) > self._grace(run) and not self._excused(run, last):
                self._ledger.fault(f"a run went on for {now - last:.3f} s after its claim had ended", *run.keys)

    def observe(self, request: Request) -> None:
        """Check that the outcomes of runs that ended by themselves are those of their behaviours."""
        if request.verb != "settle":
            return
        for s in request.args[0]:
            run = self._over.get((s.queue, s.id, s.token))
            if run is not None and request.node.main is run.node:
                allowed = OUTCOMES.get(run.behaviour, (Complete, Cancel))
                allowed = FAILS if run.behaviour == "lookup" and s.queue in ("mail", "each") else allowed
                if run.behaviour == "then" and request.node is run.node and run.reports == run.node.calls["report"]:
                    self._ledger.fault("an outcome was sent before the last lines of its run", (s.queue, s.id))
                if not (got_no_answer(s.resolution, run.behaviour) or is_outcome(s.resolution, allowed)):
                    kind = type(s.resolution).__name__
                    self._ledger.fault(f"the outcome of a run is {kind}: it does {run.behaviour}", (s.queue, s.id))

    def _check_killed(self, run: Run, now: float) -> None:
        """Check that a child process with a run that does not end was killed, unless it or its parent stood still."""
        bound = run.began + timeout_of(run.keys[0][0]) + KILLED_WITHIN
        if is_child(run.node) and not run.node.dead and now > bound:
            parents = [node for node in run.node.scheduler.nodes if run.node in node.children]
            if not any(node.frozen or node.thawed_at > run.began for node in [run.node, *parents]):
                self._ledger.fault(f"a run goes on in a child process for {now - run.began:.3f} s", *run.keys)

    def _check_lease(self, run: Run) -> None:
        for queue, id, token in run.jobs:
            ended = self._ledger.over.get((queue, id, token))
            if ended is not None and queue != "temp" and not self._clock_jumped(ended):
                late = run.began - ended
                if late > self._grace(run) - GRACE:
                    self._ledger.fault(f"a run began {late:.3f} s after its claim had ended", (queue, id))

    def _check_task(self, run: Run) -> None:
        """Check that a run begins as in a task of its own: one that was cancelled before is not used again."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            self._ledger.fault("a run begins in a task that an earlier run has cancelled", *run.keys)

    def _check_alone(self, run: Run) -> None:
        for other in self._live.values():
            both = set(other.keys) & set(run.keys)
            if not both or other.node.dead or other.stubborn or other.node.frozen:
                continue
            if other.node.rate != 1.0 or any(key[0] == "temp" for key in both):
                continue
            if any(self._excused(other, self._ledger.over.get(held, other.began)) for held in other.jobs):
                continue
            self._ledger.fault(f"a second run began beside one of {other.node.name}", *sorted(both))

    def _check_capacity(self, run: Run) -> None:
        mine = [each for each in self._live.values() if each.node is run.node and not each.stubborn]
        units = sum(each.units for each in mine)
        if units > self._capacity:
            self._ledger.fault(f"capacity: {run.node.name} uses {units} units of {self._capacity}", *run.keys)

    def _grace(self, run: Run) -> float:
        """Return how long a run may go on after its claim: longer if the clock of its node runs too slowly."""
        return GRACE + (2 * DRIFT * self._lease if run.node.rate != 1.0 else 0.0)

    def _excused(self, run: Run, ended: float) -> bool:
        """Return whether a run may have outlived its claim: its process stood still, or the clock jumped."""
        return self._clock_jumped(ended) or self._stood_still(run, ended)

    def _clock_jumped(self, ended: float) -> bool:
        """Return whether the storage's clock jumped ahead within the lease before a claim ended."""
        return any(
            fault.kind in JUMPS and -1.0 < ended - fault.at < self._lease + 1.0 for fault in self._faults.happened
        )

    def _stood_still(self, run: Run, since: float) -> bool:
        """Return whether the process was frozen or blocked since this time."""
        return bool(run.node.frozen) or run.node.thawed_at > since - 0.5


def got_no_answer(resolution: object, behaviour: str) -> bool:
    """Return whether a job fails because the settle of its own outcome failed several times."""
    if not (isinstance(resolution, Fail) and UNRECORDABLE in resolution.error):
        return False
    return behaviour == "refused" or b"StorageUnavailable" in resolution.error


def is_outcome(resolution: object, allowed: tuple[type, ...]) -> bool:
    """Return whether an outcome is of one of these kinds, and could be recorded as it was."""
    return isinstance(resolution, allowed) and not (isinstance(resolution, Fail) and UNRECORDABLE in resolution.error)
