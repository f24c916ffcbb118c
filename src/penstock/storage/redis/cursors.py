"""Cursors: positions in a listing of the jobs of a queue."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.job import State

__all__ = ["Cursor", "read_cursor"]


@dataclass(frozen=True)
class Cursor:
    """A state, and the position in its order after which the next page begins."""

    state: State
    position: bytes = b""

    def next_state(self, states: Sequence[State]) -> Cursor | None:
        following = list(states).index(self.state) + 1
        return Cursor(states[following]) if following < len(states) else None

    def encode(self) -> str:
        return urlsafe_b64encode(self.state.value.encode() + b"." + self.position).decode()


def read_cursor(after: str | None, states: Sequence[State]) -> Cursor:
    """Decode a cursor, or return that of the first page for None; raises `ValueError` if it is none of `states`."""
    if after is None:
        return Cursor(states[0])
    try:
        state, _, position = urlsafe_b64decode(after.encode()).partition(b".")
        cursor = Cursor(State(state.decode()), position)
    except ValueError:
        raise ValueError("after must be the cursor of an earlier page") from None
    if cursor.state not in states:
        raise ValueError(f"after must be the cursor of a page of the same state, not of {cursor.state.value!r}")
    return cursor
