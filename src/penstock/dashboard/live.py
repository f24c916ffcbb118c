"""Live updates: a stream that names the topics whose counters changed, at most once a second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

from penstock.dashboard.reader import Reader, Reading

__all__ = ["TOPICS", "changed_topics", "stream"]

#: Seconds after which a stream without news sends a comment, so that proxies keep it open.
KEEP_ALIVE = 15.0


def _queues(reading: Reading) -> Any:
    return [
        (queue.name, queue.counts, queue.paused_since, queue.finished, queue.oldest)
        for queue in reading.overview.queues
    ]


def _workers(reading: Reading) -> Any:
    return [(worker.id, worker.seen_at, worker.busy) for worker in reading.overview.workers], len(reading.gone)


def _rates(reading: Reading) -> Any:
    return reading.rates


def _status(reading: Reading) -> Any:
    return bool(reading.error)


#: The topics, each with the counters that it is about.
TOPICS: dict[str, Callable[[Reading], Any]] = {
    "queues": _queues, "workers": _workers, "rates": _rates, "status": _status,
}  # fmt: skip


def changed_topics(before: Reading | None, after: Reading) -> list[str]:
    """Return the topics whose counters differ between two readings."""
    if before is None:
        return list(TOPICS)
    return [name for name, counters in TOPICS.items() if counters(before) != counters(after)]


async def stream(reader: Reader) -> AsyncIterator[bytes]:
    """Yield server-sent events: `changed` with topics, separated by commas."""
    last: Reading = await reader.latest()
    yield b"retry: 2000\nevent: changed\ndata: open\n\n"
    while not reader.ending:
        reading = await reader.next(last.version, KEEP_ALIVE)
        if reading is None and not reader.ending:
            yield b": keep-alive\n\n"
        if reading is None:
            continue
        topics = changed_topics(last, reading)
        last = reading
        if topics:
            yield f"event: changed\ndata: {','.join(topics)}\n\n".encode()
