"""Helpers of the parity tests: workers that vanish, and handlers that record which runs overlap."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from penstock import JobStatus, Penstock, State
from penstock.model.ids import new_token
from penstock.model.job import Claim
from penstock.storage.base import Request

#: The storages that parity is shown on.
FEW = ("memory", "sqlite", "redis")


async def vanish(app: Penstock, queue: str = "q", *, limit: int = 10, batch: int = 1) -> list[Claim]:
    """Claim as another worker, with a lease of ten seconds, and never settle."""
    return (await app.storage.claim([Request(queue, limit, batch)], "gone", 10_000, new_token())).claims


async def status_of(app: Penstock, id: str = "a", queue: str = "q") -> JobStatus:
    """Return the status of a job; an error if there is none."""
    status = await app.queue(queue).status(id)
    assert status is not None, f"no job {id!r} in {queue!r}"
    return status


async def count(app: Penstock, state: State, queue: str = "q") -> int:
    """Return the number of jobs of a queue in this state."""
    return (await app.queue(queue).counts())[state]


class RunTracker:
    """Runs that are active now, the most at one time, and the names of which two were active together."""

    def __init__(self) -> None:
        self.inside: list[Any] = []
        self.most = 0
        self.met: set[Any] = set()

    @contextmanager
    def enter(self, name: Any) -> Generator[None, None, None]:
        if name in self.inside:
            self.met.add(name)
        self.inside.append(name)
        self.most = max(self.most, len(self.inside))
        try:
            yield
        finally:
            self.inside.remove(name)


async def yield_control(turns: int) -> None:
    """Let other tasks run a number of times."""
    for _ in range(turns):
        await asyncio.sleep(0)
