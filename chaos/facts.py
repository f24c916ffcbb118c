"""What a history is made of: puts, claims, ends, runs and what else is known of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["TERMINAL", "Call", "Cancel", "Claim", "End", "Final", "Job", "Key", "Put", "Run", "Switch"]

#: queue, id
Key = tuple[str, str]

TERMINAL = ("completed", "failed", "cancelled")


@dataclass(slots=True)
class Put:
    """A job asked for; `status` None: nobody knows whether it was accepted."""

    asked: int
    answered: int | None
    status: str | None
    number: int
    group: str | None
    delay: float | None
    mood: str
    times: int
    update: bool
    call: bool
    #: When at the latest it took effect, if it ever did.
    by: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the storage said that there is such a job now."""
        return self.status is not None


@dataclass(slots=True)
class Claim:
    """One run handed out, with the lease that went with it."""

    queue: str
    id: str
    token: str
    asked: int
    answered: int
    lease: int
    worker: str
    pid: int
    batch: int
    group: str | None
    attempts: int
    number: int | None
    #: Until when the storage certainly kept the lease unless somebody ended the run.
    valid: int = 0
    ends: list[End] = field(default_factory=list["End"])

    @property
    def first_end(self) -> int | None:
        """When somebody first asked to record an end of this run."""
        return min((end.asked for end in self.ends), default=None)


@dataclass(slots=True)
class End:
    """An end of a run, as somebody asked to record it; `state` "lost": refused, None: not known."""

    queue: str
    id: str
    token: str
    kind: str
    then: list[Any]
    delay: int
    asked: int
    answered: int | None
    state: str | None
    pid: int

    @property
    def recorded(self) -> bool:
        return self.state is not None and self.state != "lost"

    @property
    def terminal(self) -> bool:
        return self.recorded and self.state in TERMINAL


@dataclass(slots=True)
class Run:
    """A call of a handler; `ended` None: its process died, or is said to."""

    pid: int
    queue: str
    units: int
    started: int
    ended: int | None
    how: str | None
    #: id, token, attempt, number, group
    jobs: list[list[Any]]
    #: For a fail handler: queue, id, token and kind of what failed.
    of: list[str] | None


@dataclass(slots=True)
class Cancel:
    asked: int
    answered: int
    mode: str
    status: str | None
    running: bool


@dataclass(slots=True)
class Switch:
    """A queue paused or resumed."""

    queue: str
    paused: bool
    asked: int
    #: When at the latest it took effect; `sure` says that it did.
    by: int
    sure: bool


@dataclass(slots=True)
class Call:
    """What a caller heard."""

    answered: int
    state: str | None
    token: str | None


@dataclass(slots=True)
class Final:
    """A job as the storage had it at the end."""

    queue: str
    id: str
    state: str
    number: int | None
    token: str | None
    group: str | None
    counts: list[int]
    of: list[str] | None
    error: str | None


@dataclass(slots=True)
class Job:
    """Everything that is known of one id of a queue."""

    key: Key
    puts: list[Put] = field(default_factory=list[Put])
    claims: list[Claim] = field(default_factory=list[Claim])
    ends: list[End] = field(default_factory=list[End])
    cancels: list[Cancel] = field(default_factory=list[Cancel])
    calls: list[Call] = field(default_factory=list[Call])
    finals: list[Final] = field(default_factory=list[Final])
    events: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    runs: list[Run] = field(default_factory=list[Run])

    @property
    def final(self) -> Final | None:
        return self.finals[0] if self.finals else None
