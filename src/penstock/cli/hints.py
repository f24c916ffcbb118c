"""Hints about queue names that may be misspelled.

Any name is a valid queue, and a queue exists while it has jobs, a pause or a worker: an unknown one is no error.
"""

from __future__ import annotations

from difflib import get_close_matches

from penstock import Penstock
from penstock.cli.output import echo
from penstock.cli.target import describe_location

__all__ = ["hint_missing_queue", "unknown_queue"]


async def unknown_queue(app: Penstock, queue: str) -> str | None:
    """Return a hint for a queue that is about to be used; None if it is known, or is the first one here."""
    known = await known_queues(app)
    if queue in known or not known:
        return None
    return f"no worker serves {queue!r} and it had no jobs before{did_you_mean(queue, known)}"


async def hint_missing_queue(app: Penstock, queue: str) -> bool:
    """Print a hint on stderr if there is no such queue to be read; returns whether that is so."""
    known = await known_queues(app)
    if queue not in known:
        echo(f"there is no queue {queue!r} at {describe_location(app)}{did_you_mean(queue, known)}", err=True)
    return queue not in known


async def known_queues(app: Penstock) -> set[str]:
    """Return the queues with jobs, a pause, a live worker, or a handler in the app."""
    return {*await app.queues(), *app.handlers, *(name for worker in await app.workers() for name in worker.queues)}


def did_you_mean(queue: str, known: set[str]) -> str:
    """Return the end of a hint, which names the most similar queue; empty if none is similar."""
    near = get_close_matches(queue, sorted(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
