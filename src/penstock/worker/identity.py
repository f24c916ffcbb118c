"""The id of a worker, and the check that no other live worker has the same."""

from __future__ import annotations

import logging
import re

from penstock.host import AppHost
from penstock.model.printing import quote_name
from penstock.model.source import source
from penstock.model.worker_info import Heartbeat

__all__ = ["IdCheck", "default_id", "is_generated"]

log = logging.getLogger("penstock.worker")

#: When (seconds after the first heartbeat, longer than the interval of heartbeats) and how often ids are checked.
FIRST_CHECK, CHECK = 12.0, 30.0


def default_id() -> str:
    """Return a unique id for a worker, with its host and process."""
    return f"{source.host()}-{source.pid()}-{source.bytes(4).hex()}"


def is_generated(id: str) -> bool:
    """Return whether this process has generated this id, so that no other worker can have it."""
    return re.fullmatch(rf"{re.escape(source.host())}-{source.pid()}-[0-9a-f]{{8}}", id) is not None


class IdCheck:
    """Compares the stored heartbeat with the one that this worker sent last: another's means that the id is shared.

    A worker is not refused: one that was killed may be started again while its record is still there. So
    the first heartbeat replaces the record without a check. After it, each worker of a shared id finds the
    heartbeat of the other, and warns once.
    """

    def __init__(self, host: AppHost, worker: str) -> None:
        self._host = host
        self._worker = worker
        #: Distinguishes the heartbeats of this worker from those of another one with its id.
        self.instance = source.bytes(8).hex()
        #: Whether another worker with this id is alive.
        self.duplicate = False
        self._due: float | None = None
        self._known: set[str] = set()

    async def look(self, now: float) -> None:
        """Read the stored heartbeat of this id if a check is due; called before a heartbeat is sent."""
        if self._due is None:
            self._due = now + FIRST_CHECK
        elif now >= self._due and not is_generated(self._worker):
            self._due = now + CHECK
            records = await self._host.storage.workers()
            self._compare([Heartbeat.decode(record.info) for record in records if record.id == self._worker])

    def _compare(self, found: list[Heartbeat]) -> None:
        others = [beat for beat in found if beat.instance and beat.instance != self.instance]
        self.duplicate = bool(others)
        for beat in others:
            if beat.instance not in self._known:
                self._known.add(beat.instance)
                log.warning(
                    "another live worker has the id %s (host %s, pid %d): lists of workers show one of them; "
                    "give each worker an id of its own",
                    quote_name(self._worker), quote_name(beat.host), beat.pid,
                )  # fmt: skip
