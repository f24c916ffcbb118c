"""Parts of a worker for tests: a flow that ignores every step of a run, and a pool on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.model.context import Progress
from penstock.model.handler import Handler
from penstock.model.history import LogLevel
from penstock.model.job import Claim, NewJob
from penstock.model.outcome import Outcome
from penstock.worker.pool import Pool
from penstock.worker.run import Interruption, Run, RunJob

__all__ = ["IgnoringFlow", "IgnoringReport", "IgnoringServices", "new_pool"]


class IgnoringFlow:
    """A `RunFlow` that does nothing: there is always room, and every outcome is recorded."""

    replaceable = False

    def claimed(self, handler: Handler, batches: Sequence[Sequence[Claim]], units: int, asked: float) -> None: ...

    def tick_at(self, at: int, now: int | None) -> None: ...

    def limited(self, queues: Sequence[str]) -> None: ...

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


class IgnoringServices:
    """The services of a job that reports nothing and puts no follow-up jobs."""

    worker = "w"

    async def report(self, claim: Claim, progress: Progress) -> bool:
        return True

    def log(self, claim: Claim, text: str, level: LogLevel) -> None: ...

    def new_job(self, queue: str, payload: Any, options: Mapping[str, Any]) -> NewJob:
        raise NotImplementedError


class NoHandlers:
    """An executor without handlers to call."""

    async def execute(self, run: Run) -> list[Outcome]:
        return []

    def give_up(self, run: Run) -> list[Outcome]:
        return []


def new_pool(capacity: int = 100, least: int = 1) -> Pool:
    """Build a pool that runs nothing; needs a running event loop."""
    return Pool(capacity, NoHandlers(), IgnoringFlow(), least)
