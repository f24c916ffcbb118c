"""Byte strings and names as the scripts take and give them."""

from __future__ import annotations

__all__ = ["Blobs", "text"]


def text(data: bytes) -> str:
    """Decode a stored name; other software can write to the server, so invalid UTF-8 is replaced, not raised."""
    return data.decode("utf-8", "replace")


class Blobs:
    """Byte strings passed next to a script's msgpack argument, because the server's msgpack has no type for them."""

    def __init__(self) -> None:
        self.all: list[bytes] = []

    def add(self, data: bytes) -> int:
        """Add bytes and return the number by which the script finds them; 0 for empty ones."""
        if not data:
            return 0
        self.all.append(data)
        return len(self.all)
