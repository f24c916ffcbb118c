"""The history of a simulated run: a line for each call, fault and event, in the server's order, and their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["History", "Line"]

#: Calls that are too frequent and too plain for a line of their own; they count for the digest.
QUIET = frozenset({"look", "time", "beat"})


class Line(NamedTuple):
    """A line of the history: when, at which node, of which kind, and the rest."""

    at: float
    node: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:12.6f}  {self.node:<12} {self.kind:<9} {self.text}"


class History:
    """Records a run. Two runs with equal digests had the same calls and answers at the same virtual times."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.lines: list[Line] = []
        self._now = now
        self._hash = hashlib.sha256()

    def add(self, node: str, kind: str, text: str) -> None:
        """Add a line."""
        line = Line(self._now(), node, kind, text)
        self.lines.append(line)
        self._hash.update(str(line).encode())

    def call(self, request: Any, answer: Any) -> None:
        """Add a call that was carried out, and its answer."""
        text = f"{request.name} {_show(request.args)} → {_show(answer)}"
        if request.verb in QUIET:
            self._hash.update(f"{self._now():.6f} {text}".encode())
        else:
            self.add(request.node.name, request.verb, text)

    @property
    def digest(self) -> str:
        """The SHA-256 of everything so far."""
        return self._hash.hexdigest()


def _show(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else repr(value)
