"""The log of failing loops: they go on by themselves, and an outage is logged once."""

from __future__ import annotations

import logging
from collections.abc import Callable

from penstock.errors import JobError, StorageUnavailable, StorageUnusable
from penstock.host import AppHost
from penstock.model.printing import escape_controls
from penstock.model.source import source

__all__ = ["OutageLog"]

log = logging.getLogger("penstock.worker")


class OutageLog:
    """Logs and emits each change, not each try.

    The worker counts as disconnected from the first loop that cannot reach the storage until no loop
    fails any more and the storage has answered: a step without a call proves nothing.

    A storage that cannot be used any more is passed to `give_up`, once: the worker ends.
    """

    def __init__(self, host: AppHost, worker: str, give_up: Callable[[StorageUnusable], None]) -> None:
        self._host = host
        self._worker = worker
        self._give_up = give_up
        self._given_up = False
        self._disconnected = False
        #: The loops whose last step could not reach the storage.
        self._away: set[str] = set()
        #: The last logged error of each loop that fails for another reason.
        self._last_errors: dict[str, str] = {}
        #: When the storage last answered (monotonic).
        self.answered_at = source.monotonic()

    def failed(self, loop: str, error: Exception, times: int) -> None:
        """Log a failed step of a loop and emit `disconnected` or `error`, unless that was done before."""
        if isinstance(error, StorageUnusable):
            if not self._given_up:
                self._given_up = True
                self._give_up(error)
            return
        if isinstance(error, StorageUnavailable):
            if not self._disconnected:
                self._disconnected = True
                log.warning("%s: the storage cannot be reached: %s", loop, escape_controls(str(error)))
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
        """Note a step without error; with an answer of the storage it may end the outage."""
        self._last_errors.pop(loop, None)
        if answered:
            self.answered_at = source.monotonic()
        if not self._disconnected:
            return
        self._away.discard(loop)
        if answered and not self._away:
            self._disconnected = False
            log.info("the storage can be reached again")
