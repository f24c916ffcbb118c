"""The resolution of a run that waits for other jobs, for a signal or for a time."""

from __future__ import annotations

import msgspec

from penstock.model.flow import NewCheckpoint, SignalWait
from penstock.model.job import NewJob

__all__ = ["Suspend"]


class Suspend(msgspec.Struct, frozen=True, kw_only=True):
    """running → suspended, or queued at its place if it waits for nothing; the attempt refunded.

    First the checkpoints are stored and the children in `puts` are put; these become the next dependencies, in their
    order. Then the job waits until its dependencies from number `first` on, `count` of them, have ended, or for a
    signal, or for the clock: at a time or after a delay (ms). The wake time is kept as the checkpoint named `sleep`,
    and an earlier one of that name holds. A job that is to wait for nothing, or for something that has come, is queued.
    """

    checkpoints: tuple[NewCheckpoint, ...] = ()
    puts: tuple[NewJob, ...] = ()
    first: int = 0
    count: int = 0
    signal: SignalWait | None = None
    at: int | None = None
    delay: int | None = None
    sleep: str | None = None
