"""What is done for many jobs at once, cut into calls of one queue each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from penstock.storage.base import MAX_BATCH, Settlement

__all__ = ["by_queue", "chunks"]


def by_queue(items: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """The positions of the items of each queue, at most a batch at a time."""
    groups: dict[str, list[int]] = {}
    for i, item in enumerate(items):
        groups.setdefault(cast("str", item.queue), []).append(i)
    return [
        (queue, all_[at : at + MAX_BATCH]) for queue, all_ in groups.items() for at in range(0, len(all_), MAX_BATCH)
    ]


def chunks(settlements: Sequence[Settlement]) -> Sequence[tuple[str, Sequence[int]]]:
    """As `by_queue`, but in their order when one queue's settlements put jobs into another."""
    count, first = len(settlements), settlements[0].queue if settlements else ""
    if count <= MAX_BATCH and all(s.queue == first for s in settlements):
        return [(first, range(count))] if count else []
    if not any(getattr(s.end, "then", ()) for s in settlements):
        return by_queue(settlements)
    chunks: list[tuple[str, list[int]]] = []
    for i, s in enumerate(settlements):
        if chunks and chunks[-1][0] == s.queue and len(chunks[-1][1]) < MAX_BATCH:
            chunks[-1][1].append(i)
        else:
            chunks.append((s.queue, [i]))
    return chunks
