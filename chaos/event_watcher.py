"""A process that subscribes to the events of all processes and records them: `python -m chaos.event_watcher`."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from chaos.log import Log
from penstock import Penstock, StorageError

#: The events that the checker and the report read.
NAMES = ("started", "completed", "failed", "cancelled", "stalled", "timed_out", "released", "lease_lost", "retrying")


async def main() -> None:
    from chaos.jobs import app, log  # built at import, from the environment of this process

    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    recording = asyncio.create_task(record_events(app, log))
    await stop.wait()
    recording.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await recording
    with contextlib.suppress(StorageError):
        await app.close()


async def record_events(app: Penstock, log: Log) -> None:
    """Record events until cancelled; subscribe again after an outage."""
    while True:
        try:
            async with app.events(NAMES) as stream:
                log.write("listening")
                async for event in stream:
                    log.write("event", name=event.name, q=event.queue, id=event.id, n=event.attempt)
        except StorageError:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(main())
