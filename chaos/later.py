"""A look at the storage long after everything: all TTLs are over, and what may go goes. `python -m chaos.later`."""

from __future__ import annotations

import asyncio
import os
import time

from chaos.jobs import NAMESPACE
from chaos.queues import SETTINGS, WITH_FAIL_HANDLER
from penstock import Penstock


class _Later:
    """This process's clock, which `CHAOS_CLOCK` has set far ahead; servers are told it, too."""

    def time(self) -> float:
        return time.time()


async def main() -> None:
    async with Penstock(os.environ["PENSTOCK_URL"], namespace=NAMESPACE, clock=_Later()) as app:
        queues = [*SETTINGS, *(f"{queue}/failures" for queue in WITH_FAIL_HANDLER)]
        await app.workers()
        while await app.storage.purge(queues):
            pass
        # A queue whose last job went with the last purge but one is gone with the last.
        await app.storage.purge(queues)


if __name__ == "__main__":
    asyncio.run(main())
