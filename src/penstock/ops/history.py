"""History for operators: the points of a span, and the rates of a queue from the newest of them."""

from __future__ import annotations

import msgspec

from penstock.client.app import Penstock
from penstock.client.history import HistoryPoint, HistorySpan, QueueInfo, queue_info
from penstock.storage.observing import need_observing

__all__ = ["Rates", "read_history", "read_rates", "read_stats", "take_samples"]

#: The minutes over which a rate is taken.
RATE_MINUTES = 5.0


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs per minute over the last minutes; None if there are no samples of them."""

    arrived: float | None = None
    finished: float | None = None
    failed: float | None = None


async def read_stats(app: Penstock, queues: list[str]) -> list[QueueInfo]:
    """Return counts, totals and latencies of queues now."""
    storage = need_observing(await app.opened())
    return [queue_info(stats) for stats in await storage.stats(queues)]


async def read_history(app: Penstock, queue: str | None, span: HistorySpan = "2h") -> list[HistoryPoint]:
    """Return the points of a queue, or (None) of all queues together, oldest first."""
    return await app.history(span, queue=queue)


async def take_samples(app: Penstock) -> int:
    """Have the storage sample the queues, if no worker has done so in this minute; returns its time (ms)."""
    return await need_observing(await app.opened()).record_stats("", [])


def read_rates(points: list[HistoryPoint]) -> Rates:
    """Return the rates of the newest points, up to `RATE_MINUTES` of them; none across a gap."""
    minutes, arrived, finished, failed = 0.0, 0, 0, 0
    for point in reversed(points):
        if point.gap or (minutes and minutes + point.minutes > RATE_MINUTES):
            break
        minutes += point.minutes
        arrived += point.arrived
        finished += point.completed + point.failed + point.cancelled
        failed += point.failed
    if not minutes:
        return Rates()
    return Rates(arrived=arrived / minutes, finished=finished / minutes, failed=failed / minutes)
