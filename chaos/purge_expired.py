"""A purge with a clock 40 days ahead, when all TTLs have expired: `python -m chaos.purge_expired URL`."""

from __future__ import annotations

import asyncio
import sys
import time

from chaos.limited_queues import ALL_SETTINGS
from chaos.queues import NAMESPACE, WITH_FAIL_HANDLER
from chaos.stored_settings import delete_settings
from penstock import Penstock
from penstock.model.source import source

#: Seconds by which the clock is ahead: more than any TTL of the run.
AHEAD = 40 * 86_400

_now = time.time


class ShiftedClock:
    """Clock that is 40 days ahead; a server uses its time as well."""

    def time(self) -> float:
        return _now() + AHEAD


async def purge_expired(url: str) -> None:
    """Delete every job, queue and worker entry that has expired by the shifted clock, then all limits and schedules."""
    async with Penstock(url, namespace=NAMESPACE, clock=ShiftedClock()) as app:
        queues = [*ALL_SETTINGS, *(f"{queue}/failures" for queue in WITH_FAIL_HANDLER)]
        await app.workers()
        while await app.storage.purge(queues):
            pass
        # The purge after the one that deleted a queue's last job deletes the queue itself.
        await app.storage.purge(queues)
        await delete_settings(app)


if __name__ == "__main__":
    source.wall = ShiftedClock().time  # SQLite checks the age of process entries by it, not by the app's clock
    asyncio.run(purge_expired(sys.argv[1]))
