"""A server of feeds that send numbers, and report a second connection to the same feed."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict

PORT = int(os.environ.get("PORT", "8000"))

#: The last number of each feed. After a restart a feed continues with higher numbers instead of 1.
last: defaultdict[str, int] = defaultdict(lambda: int(time.time() * 10))
listeners: Counter[str] = Counter()


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    name = (await reader.readline()).decode().strip()
    listeners[name] += 1
    print(f"{name}: connected" if listeners[name] == 1 else f"{name}: CONNECTED {listeners[name]} TIMES")
    gone = asyncio.ensure_future(reader.read())
    while not gone.done():
        last[name] += 1
        writer.write(f"{last[name]}\n".encode())
        await asyncio.wait({gone}, timeout=0.2)
        if name == "cat" and last[name] % 10 == 0:
            break  # this feed closes the connection now and then
    gone.cancel()
    writer.close()
    listeners[name] -= 1
    print(f"{name}: disconnected")


async def main() -> None:
    async with await asyncio.start_server(serve, "127.0.0.1", PORT) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
