"""The state of a worker as its own process knows it, for its health checks and metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

__all__ = ["Stage", "WorkerStatus"]

Stage = Literal["starting", "working", "stopping", "stopped"]


class WorkerStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A worker now, with all its processes. Ages are in seconds, those of the process for which they are longest.

    `claim_age` is how long a process has been in one look for work, or its event loop has not run; 0 while it waits for
    work or for room. `answer_age` is how long ago the storage answered last. `loop_lag` is how late the event loop was
    when it was last measured. `runs` counts the runs that ended by queue and outcome, `restarted` the child processes
    that were replaced by reason.
    """

    id: str
    stage: Stage
    lease: float = 0.0
    capacity: int = 0
    allowed: int = 0
    busy: int = 0
    running: int = 0
    memory: int = 0
    lease_age: float | None = None
    claim_age: float = 0.0
    answer_age: float = 0.0
    loop_lag: float = 0.0
    runs: Mapping[tuple[str, str], int] = {}
    restarted: Mapping[str, int] = {}
