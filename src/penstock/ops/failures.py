"""Failures for operators: the error groups of all queues, and the retry of all jobs of one of them."""

from __future__ import annotations

from collections.abc import Callable

from penstock.client.app import Penstock
from penstock.client.history import FailureGroup

__all__ = ["read_failures", "retry_group"]


async def read_failures(app: Penstock, queue: str | None = None, *, open_only: bool = False) -> list[FailureGroup]:
    """Return the error groups of a queue, or of all: those with the most open jobs first, then those seen last."""
    names = await app.queues() if queue is None else [queue]
    found: list[FailureGroup] = []
    for name in names:
        after: str | None = None
        while True:
            page = await app.queue(name).failures(after)
            found += [group for group in page if group.open or not open_only]
            after = page.cursor
            if after is None:
                break
    return sorted(found, key=lambda group: (-group.open, -group.last_at.timestamp(), group.queue, group.key))


async def retry_group(app: Penstock, queue: str, key: str, on_step: Callable[[int], object] | None = None) -> int:
    """Retry all jobs of an error group that have failed by now, in steps; returns the number of jobs revived."""
    return await app.queue(queue).retry_failures(key, on_step=on_step)
