"""Listener to the events of one queue in a process of its own: `python -m bench.event_listener URL QUEUE`.

It prints `listening` when it is subscribed. When its input ends it leaves, and prints the number of events.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from penstock import Penstock


async def listen(url: str, queue: str) -> int:
    """Count the events of a queue until the input ends."""
    count = 0
    async with Penstock(url) as app:
        stream: Any = app.events(queue=queue)
        async with stream:
            print("listening", flush=True)
            ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
            ended.add_done_callback(lambda _: asyncio.ensure_future(stream.aclose()))
            async for _ in stream:
                count += 1
    return count


if __name__ == "__main__":
    print(asyncio.run(listen(*sys.argv[1:])), flush=True)
