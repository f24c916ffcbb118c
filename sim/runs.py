"""The runs of handlers, checked while they happen: capacity, second runs, and runs after their lease."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from penstock import Job
from penstock.testing.simulation.faults import Faults
from penstock.testing.simulation.history import History
from penstock.testing.simulation.loop import Node
from sim.behaviours import STUBBORN
from sim.ledger import Ledger
from sim.queues import CAPACITY, units_of

__all__ = ["Run", "Runs"]

#: How long (seconds) a run may go on after its claim ended: a worker gives its leases up before the storage does.
GRACE = 0.2

#: How long (seconds) after a freeze the stale runs may go on.
AFTER_FREEZE = 1.5

#: A jump of the storage's clock excuses its consequences for this long (seconds).
EXCUSED = 60.0


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

    def __init__(self, ledger: Ledger, faults: Faults, history: History) -> None:
        self._ledger = ledger
        self._faults = faults
        self._history = history
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
        self._live[run.number] = run
        self._check_capacity(run)
        return run.number

    def ended(self, number: int) -> None:
        """Note the end of a run: it must not have gone on for long after its claim ended."""
        run = self._live.pop(number)
        now = run.node.scheduler.now
        self._history.add(run.node.name, "ran", f"{run.name} {run.behaviour}")
        if run.stubborn or run.node.dead or self._excused(run) or run.keys[0][0] == "temp":
            return
        ends = [self._ledger.over.get(held) for held in run.jobs]
        if all(end is not None for end in ends):
            last = max(end for end in ends if end is not None)
            if now - max(last, run.began) > GRACE:
                self._ledger.fault(f"a run went on for {now - last:.3f} s after its claim had ended", *run.keys)

    def _check_lease(self, run: Run) -> None:
        if self._clock_was_wrong(run):
            return
        for queue, id, token in run.jobs:
            ended = self._ledger.over.get((queue, id, token))
            if ended is not None and queue != "temp":
                self._ledger.fault(f"a run began {run.began - ended:.3f} s after its claim had ended", (queue, id))

    def _check_alone(self, run: Run) -> None:
        for other in self._live.values():
            both = set(other.keys) & set(run.keys)
            if not both or other.node.dead or other.stubborn or other.node.frozen:
                continue
            if self._excused(other) or any(key[0] == "temp" for key in both):
                continue
            self._ledger.fault(f"a second run began beside one of {other.node.name}", *sorted(both))

    def _check_capacity(self, run: Run) -> None:
        mine = [each for each in self._live.values() if each.node is run.node and not each.stubborn]
        units = sum(each.units for each in mine)
        if units > CAPACITY:
            self._ledger.fault(f"capacity: {run.node.name} uses {units} units of {CAPACITY}", *run.keys)

    def _excused(self, run: Run) -> bool:
        """Return whether a run may have outlived its claim: its process stood still, or a clock was wrong."""
        return self._clock_was_wrong(run) or self._stood_still(run)

    def _clock_was_wrong(self, run: Run) -> bool:
        """Return whether the storage's clock jumped ahead lately, or the node's runs at another speed."""
        now = run.node.scheduler.now
        jumps = ("jump_forward", "long_jump")
        return run.node.rate != 1.0 or any(
            fault.kind in jumps and now - fault.at < EXCUSED for fault in self._faults.happened
        )

    def _stood_still(self, run: Run) -> bool:
        """Return whether the process was frozen or blocked during the run, or just before now."""
        now = run.node.scheduler.now
        return bool(run.node.frozen) or run.node.thawed_at > run.began - 1 or now - run.node.thawed_at < AFTER_FREEZE
