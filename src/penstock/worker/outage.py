"""What people get to know when something fails that goes on by itself."""

from __future__ import annotations

import logging

from penstock.errors import JobError, StorageUnavailable
from penstock.host import AppHost

__all__ = ["OutageLog"]

log = logging.getLogger("penstock.worker")


class OutageLog:
    """One line for each change, not for each try.

    The worker is disconnected from the first loop that cannot reach the storage until no loop fails any
    more and the storage has answered: a loop that had nothing to ask cannot tell.
    """

    def __init__(self, host: AppHost, worker: str) -> None:
        self._host = host
        self._worker = worker
        self._disconnected = False
        self._away: set[str] = set()
        #: What was last told of each loop that fails otherwise.
        self._last_errors: dict[str, str] = {}

    def failed(self, loop: str, error: Exception, times: int) -> None:
        """A step of a loop failed; the loop goes on by itself."""
        if isinstance(error, StorageUnavailable):
            if not self._disconnected:
                self._disconnected = True
                log.warning("%s: the storage cannot be reached: %s", loop, error)
                self._host.emit("disconnected", error=JobError.from_exception(error), worker=self._worker)
            self._away.add(loop)
            return
        text = f"{type(error).__name__}: {error}"
        if self._last_errors.get(loop) == text:
            return
        self._last_errors[loop] = text
        log.error("%s: a step failed", loop, exc_info=error)
        self._host.emit("error", error=JobError.from_exception(error), worker=self._worker)

    def went_well(self, loop: str, answered: bool) -> None:
        """A step of a loop went well, with an answer of the storage or without."""
        self._last_errors.pop(loop, None)
        if not self._disconnected:
            return
        self._away.discard(loop)
        if answered and not self._away:
            self._disconnected = False
            log.info("the storage can be reached again")
