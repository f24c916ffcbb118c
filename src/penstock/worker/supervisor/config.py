"""What a parent tells a child when it starts it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """How to work: for whom, as whom, how much, and which seat of how many."""

    source: str
    #: The modules in which the handlers are, and the queues that they serve.
    modules: tuple[str, ...]
    serves: tuple[str, ...]
    worker: str
    queues: tuple[str, ...] | None
    capacity: int
    lease: float
    seats: int
    #: Where the parent's storage is.
    place: str = ""
    adaptive: bool = False
    seat: int = 0
    #: Whether another child of this seat is still there: queues with `concurrency=n` are left to it for now.
    beside: bool = False
    drain: bool = False
    scheduled: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    log_level: int | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])
