"""What a parent tells a child when it starts it."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["ChildConfig"]


@dataclass(frozen=True)
class ChildConfig:
    """How to work: for whom, as whom, how much, and which seat of how many."""

    source: str
    #: The modules in which the handlers are, and the queues that they serve.
    modules: tuple[str, ...]
    serves: tuple[str, ...]
    worker: str
    queues: tuple[str, ...] | None
    capacity: int
    lease: float
    slots: int
    #: Where the parent's storage is.
    storage: str = ""
    adaptive: bool = False
    slot: int = 0
    #: Whether another child of this seat is still there: queues with `concurrency=n` are left to it for now.
    replacing: bool = False
    drain: bool = False
    scheduled: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    log_level: int | None = None
    environment: dict[str, str] = field(default_factory=dict[str, str])
