"""A broken promise, found in a run."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Violation"]


@dataclass(frozen=True)
class Violation:
    """A broken promise: when, in words, and the jobs it is about."""

    at: float
    text: str
    jobs: tuple[tuple[str, str], ...] = field(default=())

    @property
    def kind(self) -> str:
        """The text without numbers, ids and names: two runs break the same promise if their kinds are equal."""
        return re.sub(r"[0-9][0-9.]*|'[^']*'|\S+/\S+", "…", self.text.partition(": ")[0])

    def __str__(self) -> str:
        return f"{self.at:.3f}: {self.text}"
