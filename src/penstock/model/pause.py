"""Pauses of queues and groups."""

from __future__ import annotations

import msgspec

__all__ = ["Pause"]


class Pause(msgspec.Struct, frozen=True, gc=False):
    """A pause of a queue or a group, which began at `since` and ends at `until`; None means when it is resumed."""

    since: int
    until: int | None = None
    by: str = ""

    def is_over(self, now: int) -> bool:
        """Return whether it has ended by itself."""
        return self.until is not None and self.until <= now
