"""What a check says when a promise was broken."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["KINDS", "Violation"]

#: Every kind of violation, and the promise that it breaks.
KINDS: dict[str, str] = {
    "lost": "an accepted job is in some state until it is forgotten",
    "stuck": "when the faults are over, everything is done before long",
    "doubled": "one terminal transition, one terminal event, one result for each job",
    "overlapped": "one live run for each id; one live run or batch for each group",
    "disordered": "a group's jobs run in the order of their acceptance, each when those before it are done for good",
    "early": "no run before its time",
    "paused": "no run is handed out by a paused queue",
    "stale": "what a run reports after its job was handed to another is refused",
    "unheard": "a job that failed is told to its fail handler, once",
    "phantom": "only what was asked for exists; follow-ups exist if, and only if, their run was recorded",
    "wrong": "a job ends as its handler says",
    "defied": "a cancelled job does not run again",
    "crowded": "a process never runs more than its capacity",
    "leaked": "after everything is done and forgotten the storage holds what it held before",
    "exit": "a worker that is told to stop ends with 0, and no worker ends by itself",
}


@dataclass(slots=True)
class Violation:
    """A broken promise: its kind, whose it is, and what happened."""

    kind: str
    #: queue and id, queue and group, or a process.
    subject: tuple[str, ...]
    text: str
    #: The jobs whose records show it (queue, id).
    keys: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])

    def __str__(self) -> str:
        return f"{self.kind}: {' '.join(self.subject)!r}: {self.text}"
