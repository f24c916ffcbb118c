"""Keep one connection to each feed, on exactly one worker, until its job is cancelled."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from penstock import Job, Penstock, Retry

app = Penstock()


@dataclass
class Feed:
    name: str
    host: str
    port: int


# No timeout: the run lasts as long as the connection. No limits either: over months it will lose many workers, and
# the feed will be unreachable for hours.
@app.handler("connections", timeout=None, max_stalls=None, max_retries=None, min_backoff=0.5, max_backoff=60)
async def keep(feed: Feed, job: Job) -> None:
    """Enqueue a job for each line of the feed, until the job is cancelled or its worker stops."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(feed.host, feed.port)
    try:
        writer.write(f"{feed.name}\n".encode())
        async for line in reader:
            number = int(line)
            # The feed's number is the job's id: a line that arrives twice, around a change of workers, is one job.
            await app.queue("ticks").enqueue(number, id=f"{feed.name}/{number}", group=feed.name)
    finally:
        writer.close()
    raise Retry("the feed closed the connection", delay=0.5, count=False)  # the connection had worked: no backoff


@app.handler("ticks", timeout=10, result_ttl=60)
async def tick(number: int) -> None:
    """Process one line of a feed."""
