"""Calls for many jobs, cut into chunks of one queue each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, Settlement, Suspend

__all__ = ["by_queue", "chunks", "follow_ups"]


def by_queue(items: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """Return the indexes of the items of each queue, in chunks of at most `MAX_BATCH`."""
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(cast("str", item.queue), []).append(i)
    return [
        (queue, all_[at : at + MAX_BATCH]) for queue, all_ in groups.items() for at in range(0, len(all_), MAX_BATCH)
    ]


def follow_ups(s: Settlement) -> Sequence[NewJob]:
    """Return the jobs that are put with a settlement."""
    end = s.resolution
    return end.puts if isinstance(end, Suspend) else getattr(end, "then", ())


def chunks(settlements: Sequence[Settlement]) -> Sequence[tuple[str, Sequence[int]]]:
    """Return the same for settlements, whose follow-up jobs may be put into other queues.

    Two settlements that touch one queue keep their order.
    """
    count, first = len(settlements), settlements[0].queue if settlements else ""
    if count <= MAX_BATCH and len({s.queue for s in settlements}) <= 1:
        return [(first, range(count))] if count else []
    if not any(follow_ups(s) for s in settlements):
        return by_queue(settlements)
    chunks: list[tuple[str, list[int]]] = []
    latest, touched = dict[str, int](), dict[str, int]()  # by queue: its own last chunk, and the last that touches it
    for i, s in enumerate(settlements):
        touches = {s.queue, *(new.queue for new in follow_ups(s))}
        at = latest.get(s.queue, -1)
        if at < max(touched.get(queue, 0) for queue in touches) or len(chunks[at][1]) == MAX_BATCH:
            at = latest[s.queue] = len(chunks)
            chunks.append((s.queue, []))
        chunks[at][1].append(i)
        touched.update(dict.fromkeys(touches, at))
    return chunks
