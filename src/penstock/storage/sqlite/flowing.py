"""The verbs of flows of the SQLite storage: the protocol `Flowing`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.model.flow import DependencyPage, Extended, JobRef, JournalPage, Relayed, SignalStatus
from penstock.storage.base import MAX_BATCH
from penstock.storage.sqlite import journal, relay, revive
from penstock.storage.sqlite.transaction import Transaction

__all__ = ["SqliteFlowing"]

T = TypeVar("T")


class SqliteFlowing:
    """The part of `SqliteStorage` that keeps flows; see `penstock.storage.flowing` for each verb."""

    def _write(self, verb: Callable[[Transaction], T]) -> Awaitable[T]:
        """Run a verb in a transaction that writes."""
        raise NotImplementedError

    def _read(self, verb: Callable[[Transaction], T]) -> Awaitable[T]:
        """Run a verb in a transaction that reads."""
        raise NotImplementedError

    async def signal(self, queue: str, id: str, name: str, value: bytes = b"") -> SignalStatus:
        """Send a signal to an unfinished job."""
        return await self._write(lambda tx: relay.signal(tx, queue, id, name, value))

    async def extend(
        self, queue: str, id: str, generation: str, dependencies: Sequence[JobRef], first: int, final: bool = False
    ) -> Extended:
        """Add dependencies to a job that was put with `open`, and with `final` end that."""
        return await self._write(lambda tx: relay.extend(tx, queue, id, generation, dependencies, first, final))

    async def revive(self, queue: str, ids: Sequence[str], completed: bool = False, fresh: bool = False) -> list[bool]:
        """Revive jobs: failed or cancelled (or completed, if asked) → queued or suspended, all counts zero."""
        return await self._write(lambda tx: revive.revive(tx, queue, ids, completed, fresh))

    async def relay(self, families: Sequence[str], limit: int = MAX_BATCH) -> Relayed:
        """Apply up to `limit` effects of the outboxes of these families."""
        if not await self._read(lambda tx: relay.is_needed(tx, families)):
            return Relayed(0)
        return await self._write(lambda tx: relay.relay(tx, families, limit))

    async def read_journal(self, queue: str, id: str, after: int = 0, limit: int = 1000) -> JournalPage | None:
        """Return the checkpoints of a job with higher numbers than `after`; None if there is no such job."""
        return await self._read(lambda tx: journal.read_journal(tx, queue, id, after, limit))

    async def dependencies(self, queue: str, id: str, after: int = -1, limit: int = 1000) -> DependencyPage | None:
        """Return the dependencies of a job with higher numbers than `after`; None if there is no such job."""
        return await self._read(lambda tx: journal.read_dependencies(tx, queue, id, after, limit))
