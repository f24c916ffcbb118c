"""The jobs that a drain waits for: those that may start later without any further call."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.limit_changes import limiting_of
from penstock.model.ids import family_of, is_fail_queue
from penstock.model.job import State
from penstock.storage.base import Storage
from penstock.storage.limiting import Scope

__all__ = ["may_start_later"]


async def may_start_later(storage: Storage, queues: Sequence[str]) -> bool:
    """Return whether jobs of these queues are due later, or wait for a rate or a pause that ends.

    A queue or group that is paused without an end is not waited for, nor a limit that runs elsewhere have reached.
    """
    for queue in queues:
        counts = await storage.counts(queue)
        later = counts[State.SCHEDULED] + counts[State.RETRYING]
        if not later and not counts[State.QUEUED]:
            continue
        pause = await storage.paused(queue)
        if pause is not None and pause.until is None:
            continue
        if later or pause is not None or await _opens(storage, queue):
            return True
    return False


async def _opens(storage: Storage, queue: str) -> bool:
    """Return whether a gate of the queue, of one of its groups or of its family opens by itself."""
    if (limits := limiting_of(storage)) is None:
        return False
    scopes = [Scope("queue", queue), Scope("groups", queue)]
    if not is_fail_queue(queue):
        scopes.append(Scope("family", family_of(queue)))
    for scope in scopes:
        if (await limits.get_limit(scope)).opens is not None:
            return True
    return False
