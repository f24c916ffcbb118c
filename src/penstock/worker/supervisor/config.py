"""The configuration that a supervisor passes to a child process."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.log_config import LogFormat

__all__ = ["ChildConfig"]


@dataclass(frozen=True)
class ChildConfig:
    """The configuration of one child: the app, the worker's id and bounds, and the child's slot among `slots`."""

    source: str
    #: The modules that register the handlers, and the queues that these serve.
    modules: tuple[str, ...]
    serves: tuple[str, ...]
    worker: str
    queues: tuple[str, ...] | None
    capacity: int
    lease: float
    slots: int
    #: The location of the parent's storage.
    storage: str = ""
    adaptive: bool = False
    slot: int = 0
    #: Whether another child of this slot still runs: queues with `concurrency=n` are left to it for now.
    replacing: bool = False
    drain: bool = False
    scheduled: bool = False
    max_jobs: int | None = None
    max_rss: int | None = None
    log_level: int | None = None
    #: Whether the log has the traceback of every failed run, not only of the last one of a job.
    log_tracebacks: bool = False
    log_format: LogFormat = "text"
    #: Whether it notes its state every second, for the health checks and metrics of its worker.
    watched: bool = False
    environment: dict[str, str] = field(default_factory=dict[str, str])
