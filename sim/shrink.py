"""Shrinking: the smallest plan that still breaks the same promise.

Kinds of faults go first, then workers and jobs, then single faults; of a list, halves go before smaller parts (delta
debugging).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.testing.simulation.plan import Plan
from sim.run import Report, run_seed

__all__ = ["Shrinker"]

#: A smaller plan is given up this many times later than the promise was broken, plus these virtual seconds: most plans
#: that keep the promise until then keep it for good.
LATER = (1.5, 10.0)


class Shrinker:
    """Runs smaller plans as long as they break the same promise, until none is left or the time is over."""

    def __init__(
        self,
        report: Report,
        url: str,
        seconds: float = 120.0,
        run: Callable[..., Report] = run_seed,
        model: bool = True,
    ) -> None:
        self.best = report
        self.runs = 0
        self._kind = report.violations[0].kind
        self._url = url
        self._run = run
        self._model = model
        self._until = time.monotonic() + seconds

    def shrink(self) -> Report:
        """Return the report of the smallest plan that was found."""
        self._keep(())  # perhaps no fault is needed
        self._reduce(sorted(self.best.plan.kinds), self._keep_kinds, lambda: sorted(self.best.plan.kinds))
        while self.best.plan.workers > 1 and self._try(
            replace(self.best.plan, workers=self.best.plan.workers - 1), self.best.jobs
        ):
            pass
        for part in (4, 2, 1.3):
            self._try(self.best.plan, max(2, int(self.best.jobs / part)))
        if self._keep(self._names()):
            self._reduce(self._names(), self._keep, self._names)
        return self.best

    def _try(self, plan: Plan, jobs: int) -> bool:
        """Run a plan and keep it if it breaks the same promise."""
        if time.monotonic() > self._until or (plan == self.best.plan and jobs == self.best.jobs):
            return False
        self.runs += 1
        until = LATER[0] * self.best.violations[0].at + LATER[1]
        report = self._run(plan, self._url, jobs=jobs, model=self._model, until=until)
        if report.violations and report.violations[0].kind == self._kind:
            self.best = report
            return True
        return False

    def _reduce(
        self, names: list[str], keep: Callable[[Sequence[str]], bool], left: Callable[[], Sequence[str]]
    ) -> None:
        """Leave out parts of a list, first halves and then smaller ones; `left` returns what happens of the rest."""
        parts = 2
        while names and parts <= 2 * len(names) and time.monotonic() < self._until:
            size = max(1, len(names) // parts)
            for start in range(0, len(names), size):
                rest = [*names[:start], *names[start + size :]]
                if keep(rest):
                    happens = set(left())
                    names = [name for name in rest if name in happens]
                    parts = max(2, parts - 1)
                    break
            else:
                if size == 1:
                    return
                parts *= 2

    def _keep_kinds(self, kinds: Sequence[str]) -> bool:
        return self._try(replace(self.best.plan, kinds=frozenset(kinds)), self.best.jobs)

    def _keep(self, names: Sequence[str]) -> bool:
        return self._try(replace(self.best.plan, only=frozenset(names)), self.best.jobs)

    def _names(self) -> list[str]:
        """Return the names of the faults that happened, and of the wrong clocks."""
        clocks = {"skew", "drift"} & self.best.plan.kinds
        nodes = dict.fromkeys(line.node for line in self.best.history)
        return [*(f"{kind}/{node}" for kind in sorted(clocks) for node in nodes), *(f.name for f in self.best.faults)]
