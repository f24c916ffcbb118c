"""A process that hears the app's events, everybody's, and writes them down: `python -m chaos.witness`."""

from __future__ import annotations

import asyncio
import contextlib
import signal

from chaos.log import Log
from penstock import Penstock, StorageError

#: What the checker looks at; the rest is noise.
NAMES = ("started", "completed", "failed", "cancelled", "stalled", "timed_out", "released", "lease_lost", "retrying")


async def listen() -> None:
    from chaos.jobs import app, log  # what they are, the environment of a process says

    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, over.set)
    hearing = asyncio.create_task(hear(app, log))
    await over.wait()
    hearing.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await hearing
    with contextlib.suppress(StorageError):
        await app.close()


async def hear(app: Penstock, log: Log) -> None:
    while True:
        try:
            async with app.events(NAMES) as stream:
                log.write("listening")
                async for event in stream:
                    log.write("event", name=event.name, q=event.queue, id=event.id, n=event.attempt)
        except StorageError:
            await asyncio.sleep(0.2)


if __name__ == "__main__":
    asyncio.run(listen())
