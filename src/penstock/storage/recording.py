"""The optional part of a storage that keeps histories with its jobs: the attempts of a job, its log, its stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast, runtime_checkable

from penstock.errors import NotSupported
from penstock.model.history import HistoryEntry, HistoryName, HistoryPage, NewLine, Report, Reported

__all__ = [
    "HistoryEntry",
    "HistoryName",
    "HistoryPage",
    "NewLine",
    "Recording",
    "Report",
    "Reported",
    "need_recording",
]


@runtime_checkable
class Recording(Protocol):
    """A storage with histories. On one without them, the calls that need them raise `NotSupported`.

    `settle` and `reap` add an entry to `attempts` for each run that ended as retrying, failed, cancelled or stalled, in
    the same step. A run that completed or was released adds none. An error that equals that of the first entry is
    stored once. Histories go with the record of their job: `revive` keeps them, a put that starts anew does not.
    """

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        """Store progress, log lines and parts of runs, fenced by their tokens; see `Storage.report`."""
        ...

    async def read(
        self, queue: str, id: str, history: HistoryName, after: int = 0, limit: int = 1000
    ) -> HistoryPage | None:
        """Return the entries of a history with higher numbers than `after`; None if there is no such job.

        A page has at most `limit` entries, and fewer if they reach `MAX_BYTES`.
        """
        ...

    async def wait_history(self, queue: str, id: str, history: HistoryName, after: int, timeout: float) -> bool:
        """Sleep until a history may have entries after this number or the job may have ended, or for `timeout` seconds.

        Returns whether a hint came. While a caller waits, a job that would not be kept when it ends stays for a minute.
        """
        ...


def need_recording(storage: object) -> Recording:
    """Return the histories of a storage; raises `NotSupported` if it has none."""
    found: Any = storage
    if not (hasattr(found, "read") and hasattr(found, "wait_history")):
        raise NotSupported(f"{type(storage).__name__} keeps no histories of jobs")
    return cast("Recording", found)
