"""The verbs of histories of the SQLite storage: the protocol `Recording`."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.model.history import HistoryName, HistoryPage, Report, Reported
from penstock.storage.sqlite import histories
from penstock.storage.sqlite.notifier import Notifier
from penstock.storage.sqlite.verbs import SqliteVerbs

__all__ = ["SqliteRecording"]


class SqliteRecording(SqliteVerbs):
    """The part of `SqliteStorage` that keeps histories; see `penstock.storage.recording` for each verb."""

    def open_notifier(self) -> Notifier:
        """Return the notifier of the open storage."""
        raise NotImplementedError

    async def report(self, reports: Sequence[Report]) -> list[Reported]:
        """Store progress and log lines of runs, fenced by their tokens."""
        return await self._write(lambda tx: histories.report(tx, reports))

    async def read(
        self, queue: str, id: str, history: HistoryName, after: int = 0, limit: int = 1000
    ) -> HistoryPage | None:
        """Return the entries of a history with higher numbers than `after`; None if there is no such job."""
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        return await self._read(lambda tx: histories.read(tx, queue, id, history, after, limit))

    async def wait_history(self, queue: str, id: str, history: HistoryName, after: int, timeout: float) -> bool:
        """Sleep until a history may have entries after this number or the job may have ended."""
        return await self.open_notifier().wait_history(queue, id, histories.KINDS[history], after, timeout)
