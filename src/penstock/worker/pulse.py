"""The state of a worker, noted every second on its event loop, for threads that must answer even if the loop hangs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from msgspec.structs import replace

from penstock.model.source import source
from penstock.model.worker_status import WorkerStatus

__all__ = ["BLOCKED", "PULSE", "Pulse", "RunCounts"]

#: How often (seconds) the state is noted, and from which delay on the event loop counts as blocked.
PULSE, BLOCKED = 1.0, 2.0

#: The number of ended runs by queue and outcome.
RunCounts = Counter[tuple[str, str]]


class Pulse:
    """A task that notes the state of a worker every second, and how late it is itself."""

    def __init__(self, look: Callable[[], WorkerStatus]) -> None:
        self._look = look
        self._task: asyncio.Task[None] | None = None
        self._noted = replace(look(), loop_lag=0.0)
        self._at = source.monotonic()

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.create_task(self._run(), name="penstock pulse")

    async def stop(self) -> None:
        """End the task. Idempotent."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(PULSE)
            self.note()

    def note(self) -> None:
        """Note the state now; the lag is how much later this is than it should be."""
        now = source.monotonic()
        status = self._look()
        lag = max(now - self._at - PULSE, 0.0, status.loop_lag)
        self._noted, self._at = replace(status, loop_lag=lag), now

    def status(self) -> WorkerStatus:
        """Return the last state, with its ages as they are now; any thread may call it."""
        noted, since = self._noted, source.monotonic() - self._at
        blocked = since if since > BLOCKED else 0.0
        return replace(
            noted,
            claim_age=max(noted.claim_age + since if noted.claim_age else 0.0, blocked),
            answer_age=noted.answer_age + since,
            lease_age=None if noted.lease_age is None else noted.lease_age + since,
            loop_lag=max(noted.loop_lag, blocked),
        )
