"""One worker process of a race: it claims, runs and settles until nothing is left, then prints its record.

    python -m tests.races.run '{"storage": "redis", "url": "redis://…", …}'

The handler appends to a list. Every entry has the job, its group, and the system-wide monotonic time
just after its claim was answered and just before its settlement was sent.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any

from penstock.errors import StorageUnavailable
from penstock.storage.base import ClaimRef, Complete, Request, Settlement, Storage


def build(storage: str, url: str, namespace: str) -> Storage:
    if storage == "sqlite":
        from penstock.storage.sqlite import SqliteStorage

        return SqliteStorage(url, namespace=namespace)
    from penstock.storage.redis import RedisStorage

    return RedisStorage(url, namespace=namespace)


class Racer:
    """A minimal worker for races; it also reaps, as every worker does."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.name: str = options["name"]
        self.queue: str = options["queue"]
        self.limit: int = options["limit"]
        self.lease: int = options["lease"]
        self.total: int = options["total"]
        #: After this number of runs this process stops in the middle of a batch and waits to be killed.
        self.die_after: int | None = options["die_after"]
        self.storage = build(options["storage"], options["url"], options["namespace"])
        self.runs: list[tuple[str, str | None, int, int]] = []
        self.claims = 0
        self.idle = True

    async def race(self) -> None:
        await self.storage.open()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        while await self.unfinished():
            self.claims += 1
            token = f"{self.name}{self.claims:015}"
            answer = await self.storage.claim([Request(self.queue, self.limit)], self.name, self.lease, token)
            self.idle = not answer.claims
            if self.idle:
                await self.storage.reap([self.queue])
                with contextlib.suppress(StorageUnavailable):  # a busy machine may answer too late
                    await self.storage.wait_work([self.queue], 0.2)
                continue
            claimed = time.monotonic_ns()
            settlements: list[Settlement] = []
            for claim in answer.claims:
                settlements.append(Settlement(claim.queue, claim.id, claim.token, Complete(b"", 3_600_000)))
            if self.die_after is not None and len(self.runs) >= self.die_after:
                await self.stop_dead([ClaimRef(c.queue, c.id, c.token) for c in answer.claims])
            settling = time.monotonic_ns()
            settled = await self.storage.settle(settlements)
            for claim, outcome in zip(answer.claims, settled, strict=True):
                if not outcome.lost:
                    self.runs.append((claim.id, claim.group, claimed, settling))
        await self.storage.close()
        print(json.dumps(self.runs), flush=True)

    async def unfinished(self) -> bool:
        """Return whether a job is still waiting or running; called only when a claim returned nothing."""
        if not self.idle:
            return True
        counts = await self.storage.counts(self.queue)
        return counts["completed"] < self.total  # type: ignore[index]

    async def stop_dead(self, held: list[ClaimRef]) -> None:
        """Print the runs so far and the claims, and wait to be killed."""
        print(json.dumps({"runs": self.runs, "held": [h.id for h in held]}), flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(Racer(json.loads(sys.argv[1])).race())
