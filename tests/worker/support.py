"""Parts of a worker for tests: a flow that ignores every step of a run, and a pool on it."""

from __future__ import annotations

import math
from collections.abc import Sequence

from penstock.model.handler import Handler
from penstock.model.job import Claim
from penstock.model.outcome import Outcome
from penstock.worker.pool import Pool
from penstock.worker.run import Interruption, Run, RunJob

__all__ = ["IgnoringFlow", "IgnoringReport", "new_pool"]


class IgnoringFlow:
    """A `RunFlow` that does nothing: there is always room, and every outcome is recorded."""

    replaceable = False

    def claimed(self, handler: Handler, batches: Sequence[Sequence[Claim]], units: int, asked: float) -> None: ...

    def started(self, run: Run) -> None: ...

    def fence(self, run: Run, now: float) -> None: ...

    def ended(self, run: Run, outcomes: list[Outcome]) -> None: ...

    def settled(self, jobs: Sequence[RunJob]) -> None: ...

    def lost(self, job: RunJob) -> None: ...

    def interrupt(self, run: Run, why: Interruption) -> None: ...

    def stuck(self, run: Run) -> None: ...

    def settle_soon(self) -> None: ...

    def all_settled(self) -> None: ...

    def watch(self, due: float) -> None: ...

    def room(self) -> float:
        return math.inf

    def everything_settled(self) -> bool:
        return True


class IgnoringReport:
    """A `LoopReport` that logs nothing."""

    def failed(self, loop: str, error: Exception, times: int) -> None: ...

    def went_well(self, loop: str, answered: bool) -> None: ...


class NoHandlers:
    """An executor without handlers to call."""

    async def execute(self, run: Run) -> list[Outcome]:
        return []

    def give_up(self, run: Run) -> list[Outcome]:
        return []


def new_pool(capacity: int = 100, least: int = 1) -> Pool:
    """Build a pool that runs nothing; needs a running event loop."""
    return Pool(capacity, NoHandlers(), IgnoringFlow(), least)
