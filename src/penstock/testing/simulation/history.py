"""The history of a simulated run: a line for each call, fault and event, in the server's order, and their digest."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["History", "Line"]

#: Calls that are too frequent and too plain for a line of their own; they count for the digest.
QUIET = frozenset({"look", "time", "beat", "workers", "announce", "open"})

#: How many characters of the arguments and the answer of other calls a line shows.
MAX_TEXT = 160


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
        """Add a call that was carried out, and its answer; the digest has all of both, the line what matters."""
        self._hash.update(f"{self._now():.6f} {request.name} {_show(request.args)} {_show(answer)}".encode())
        if request.verb not in QUIET:
            text = summary(request.verb, request.args, answer)
            if text:
                self.lines.append(Line(self._now(), request.node.name, request.verb, f"{text}  [{request.name}]"))

    @property
    def digest(self) -> str:
        """The SHA-256 of everything so far."""
        return self._hash.hexdigest()


def _show(value: Any) -> str:
    return f"{type(value).__name__}: {value}" if isinstance(value, Exception) else repr(value)


def summary(verb: str, args: tuple[Any, ...], answer: Any) -> str:
    """Return the jobs of a call and its answers, short; empty if it found nothing."""
    if isinstance(answer, Exception):
        return f"→ {_show(answer)}"
    match verb:
        case "put":
            return ", ".join(f"{_job(new)} → {put.status}" for new, put in zip(args[0], answer, strict=True))
        case "claim":
            found = [f"{_job(claim)} (attempt {claim.attempts}, {claim.token})" for claim in answer.claims]
            return f"for {args[1]} → {', '.join(found)}" if found else ""
        case "settle":
            pairs = zip(args[0], answer, strict=True)
            return ", ".join(
                f"{_job(each)} {type(each.resolution).__name__} ({each.token}) → {settled.state or 'lost'}"
                for each, settled in pairs
            )
        case "renew":
            pairs = zip(args[1], answer, strict=True)
            return ", ".join(f"{_job(ref)} → {_renewal(renewal)}" for ref, renewal in pairs)
        case "reap":
            return ", ".join(f"{_job(each)} of {each.worker} → {each.state}" for each in answer)
        case "purge":
            return f"→ {answer} records" if answer else ""
        case _:
            given = ", ".join(map(repr, args))
            return f"{given} → {_show(answer)}"[:MAX_TEXT]


def _job(value: Any) -> str:
    return f"{value.queue}/{value.id}"


def _renewal(renewal: Any) -> str:
    if not renewal.kept:
        return "lost"
    return f"kept, cancel {renewal.cancel}" if renewal.cancel else "kept"
