"""What people get to know when something fails that goes on by itself."""

from __future__ import annotations

import logging

from penstock.errors import JobError, StorageUnavailable
from penstock.worker.host import Host

__all__ = ["Trouble"]

log = logging.getLogger("penstock.worker")


class Trouble:
    """One line for each change, not for each try.

    The worker is disconnected from the first loop that cannot reach the storage until all can again.
    """

    def __init__(self, host: Host, worker: str) -> None:
        self._host = host
        self._worker = worker
        self._away: set[str] = set()

    def failed(self, loop: str, error: Exception, times: int) -> None:
        """A step of a loop failed; the loop goes on by itself."""
        if isinstance(error, StorageUnavailable):
            if not self._away:
                log.warning("%s: the storage cannot be reached: %s", loop, error)
                self._host.tell("disconnected", error=JobError.from_exception(error), worker=self._worker)
            self._away.add(loop)
            return
        log.error("%s: a step failed", loop, exc_info=error)
        self._host.tell("error", error=JobError.from_exception(error), worker=self._worker)

    def mended(self, loop: str) -> None:
        """A loop that had failed goes on."""
        if loop in self._away:
            self._away.remove(loop)
            if not self._away:
                log.info("the storage can be reached again")
