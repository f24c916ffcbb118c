"""Keep a connection to each feed, on exactly one worker, for as long as somebody wants it."""

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


# No timeout: the run lasts as long as the connection is wanted. No limits either: over the months it will lose many a
# worker, and the feed will be away for hours.
@app.handler("connections", timeout=None, max_stalls=None, max_retries=None, min_backoff=0.5, max_backoff=60)
async def keep(feed: Feed, job: Job) -> None:
    """Turn what is heard into jobs. It ends only by being cancelled: by somebody, or because its worker stops."""
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection(feed.host, feed.port)
    try:
        writer.write(f"{feed.name}\n".encode())
        async for line in reader:
            number = int(line)
            # Numbered by the feed: one that is heard twice, around a change of workers, is still one job.
            await app.queue("ticks").enqueue(number, id=f"{feed.name}/{number}", group=feed.name)
    finally:
        writer.close()
    raise Retry("the feed closed the connection", delay=0.5, count=False)  # it had worked: no reason to back off


@app.handler("ticks", timeout=10, result_ttl=60)
async def tick(number: int) -> None:
    """Whatever is done with what was heard."""
