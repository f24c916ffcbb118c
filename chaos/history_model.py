"""The values of a history: puts, claims, settlements, handler runs and the other facts of a job."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "TERMINAL",
    "Call",
    "Cancel",
    "Claim",
    "ClockJump",
    "FaultSpan",
    "FinalState",
    "HandlerRun",
    "Job",
    "Key",
    "PauseChange",
    "Put",
    "Settlement",
]

#: Queue and id.
Key = tuple[str, str]

TERMINAL = ("completed", "failed", "cancelled")


@dataclass(slots=True)
class Put:
    """Enqueue of one job; `status` is None if the storage never answered."""

    asked: int
    answered: int | None
    status: str | None
    number: int
    group: str | None
    delay: float | None
    behaviour: str
    times: int
    update: bool
    call: bool
    #: The latest moment at which it may have taken effect.
    by: int = 0
    cost: int = 1

    @property
    def accepted(self) -> bool:
        """Whether the storage acknowledged the job."""
        return self.status is not None


@dataclass(slots=True)
class Claim:
    """Claim of one job, with its lease."""

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
    #: Until when the lease was certainly valid, unless a settle ended it.
    valid: int = 0
    settlements: list[Settlement] = field(default_factory=list["Settlement"])

    @property
    def first_settled(self) -> int | None:
        """The moment of the first settle call for this claim, or None."""
        return min((each.asked for each in self.settlements), default=None)

    @property
    def live_until(self) -> int:
        """The moment until which it was certainly live."""
        first = self.first_settled
        return self.valid if first is None else min(self.valid, first)


@dataclass(slots=True)
class Settlement:
    """Settle call for one claim; `state` is "lost" if it was refused, None if it was not answered."""

    queue: str
    id: str
    token: str
    kind: str
    follow_ups: list[Any]
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
class HandlerRun:
    """Call of a handler; `ended` is None if no end was recorded, as of a run whose process was killed."""

    pid: int
    queue: str
    units: int
    started: int
    ended: int | None
    how: str | None
    #: id, token, attempt, number, group
    jobs: list[list[Any]]
    #: For a fail handler: queue, id, token and error kind of the failed job.
    of: list[str] | None


@dataclass(slots=True)
class Cancel:
    """Cancel call of a producer."""

    asked: int
    answered: int
    mode: str
    status: str | None
    running: bool


@dataclass(slots=True)
class PauseChange:
    """Pause or resume of a queue."""

    queue: str
    paused: bool
    asked: int
    #: The latest moment at which it took effect; `sure` if it was acknowledged.
    by: int
    sure: bool


@dataclass(slots=True)
class ClockJump:
    """Jump of the clock of all processes between two moments, by milliseconds, to an offset from the true time."""

    asked: int
    by: int
    jump: int
    ahead: int


@dataclass(slots=True)
class FaultSpan:
    """Fault from its begin to its end, None if it was not recorded, and the processes that it hit."""

    name: str
    began: int
    over: int | None = None
    pids: frozenset[int] = frozenset()


@dataclass(slots=True)
class Call:
    """Answer to a caller that waited for a result."""

    answered: int
    state: str | None
    token: str | None


@dataclass(slots=True)
class FinalState:
    """A job as the storage had it at the end of the run."""

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
    """All facts about one id of a queue."""

    key: Key
    puts: list[Put] = field(default_factory=list[Put])
    claims: list[Claim] = field(default_factory=list[Claim])
    settlements: list[Settlement] = field(default_factory=list[Settlement])
    cancels: list[Cancel] = field(default_factory=list[Cancel])
    calls: list[Call] = field(default_factory=list[Call])
    finals: list[FinalState] = field(default_factory=list[FinalState])
    events: list[tuple[str, int]] = field(default_factory=list[tuple[str, int]])
    runs: list[HandlerRun] = field(default_factory=list[HandlerRun])

    @property
    def final(self) -> FinalState | None:
        return self.finals[0] if self.finals else None
