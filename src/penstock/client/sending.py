"""An enqueue as its hooks see it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from penstock.client.answers import Enqueued
from penstock.client.entry import Entry

__all__ = ["EnqueueHook", "Sending", "as_entry"]


class Sending:
    """An enqueue as its hooks see it: one call of `enqueue`, `enqueue_many`, `call` or `job.then`.

    `entries` are its payloads and options, and `headers` are added to those of each entry: a header that an entry has
    itself is not replaced. A hook may change both before its `yield`. `answers` has the answers after it: none if the
    enqueue failed, nor of a follow-up (`follow_up`), which is stored when its run completes. `waits` means that the
    caller waits for the result. An `enqueue_many` of an iterator has one for each round trip of 500.
    """

    __slots__ = ("answers", "entries", "follow_up", "headers", "queue", "waits")

    def __init__(self, queue: str, entries: list[Entry], *, waits: bool = False, follow_up: bool = False) -> None:
        self.queue = queue
        self.entries = entries
        self.headers: dict[str, str] = {}
        self.answers: list[Enqueued] = []
        self.waits = waits
        self.follow_up = follow_up

    def __repr__(self) -> str:
        return f"<Sending {len(self.entries)} to {self.queue!r}>"

    def with_headers(self) -> list[Entry]:
        """Return the entries, each with the headers of all added to its own."""
        if self.headers:
            for entry in self.entries:
                entry.headers = {**self.headers, **(entry.headers or {})}
        return self.entries


EnqueueHook = Callable[[Sending], AbstractContextManager[Any]]


def as_entry(item: Any) -> Entry:
    """Return a payload as an entry, and an entry as a copy, which a hook may change."""
    return copy.copy(item) if isinstance(item, Entry) else Entry(item)
