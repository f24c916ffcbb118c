"""Cursors: where a walk through the jobs of a queue has come to."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.model.job import State

__all__ = ["Cursor", "read_cursor"]


@dataclass(frozen=True)
class Cursor:
    """A state, and the place in its order after which to go on."""

    state: State
    place: bytes = b""

    def next_state(self, states: Sequence[State]) -> Cursor | None:
        following = list(states).index(self.state) + 1
        return Cursor(states[following]) if following < len(states) else None

    def spell(self) -> str:
        return urlsafe_b64encode(self.state.value.encode() + b"." + self.place).decode()


def read_cursor(after: str | None, states: Sequence[State]) -> Cursor:
    """The cursor that `spell` wrote, or the start."""
    if after is None:
        return Cursor(states[0])
    try:
        state, _, place = urlsafe_b64decode(after.encode()).partition(b".")
        cursor = Cursor(State(state.decode()), place)
    except ValueError:
        raise ValueError("after must be the cursor of an earlier page") from None
    if cursor.state not in states:
        raise ValueError(f"after must be the cursor of a page of the same state, not of {cursor.state.value!r}")
    return cursor
