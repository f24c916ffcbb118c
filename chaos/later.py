"""A look at the storage long after everything: all TTLs are over, and what may go goes. `python -m chaos.later URL`."""

from __future__ import annotations

import asyncio
import sys
import time

from chaos.queues import NAMESPACE, SETTINGS, WITH_FAIL_HANDLER
from penstock import Penstock

#: All TTLs of the run are shorter than this (seconds).
LONG = 40 * 86_400

_now = time.time


class Later:
    """A clock far ahead; servers are told its time, too."""

    def time(self) -> float:
        return _now() + LONG


async def forget(url: str) -> None:
    """Let everything go whose time is over by then."""
    async with Penstock(url, namespace=NAMESPACE, clock=Later()) as app:
        queues = [*SETTINGS, *(f"{queue}/failures" for queue in WITH_FAIL_HANDLER)]
        await app.workers()
        while await app.storage.purge(queues):
            pass
        # A queue whose last job went with the last purge but one is gone with the last.
        await app.storage.purge(queues)


if __name__ == "__main__":
    time.time = Later().time  # what a file knows of processes goes by the machine's own clock
    asyncio.run(forget(sys.argv[1]))
