"""Does anything stay behind? Many jobs of every kind are worked off, their TTLs pass, and the storage is counted."""

from __future__ import annotations

import json
from typing import Any

from bench.server import rows_of, storage_url
from penstock.job import NewJob, new_ids, new_token
from penstock.storage import connect
from penstock.storage.base import Complete, Fail, Request, Settlement, Storage

CHUNK = 500


async def _work(storage: Storage, count: int) -> None:
    """Plain, grouped, prioritised and failing jobs, and one in ten that is not kept at all."""
    for _ in range(0, count, CHUNK):
        jobs = [
            NewJob(
                queue="bench", id=id, payload=b"{}", fresh=True, group=f"g{i % 97}" if i % 4 == 0 else None,
                priority=i % 3 if i % 4 else 0,
            )
            for i, id in enumerate(new_ids(CHUNK))
        ]  # fmt: skip
        await storage.put(jobs)
        done = 0
        while done < CHUNK:
            claimed = await storage.claim([Request("bench", CHUNK)], "bench", 60_000, new_token())
            ends: list[Settlement] = []
            for i, claim in enumerate(claimed.claims):
                end = Fail(b"", 1) if i % 5 == 0 else Complete(b"null", 0 if i % 10 == 1 else 1)
                ends.append(Settlement(claim.queue, claim.id, claim.token, end))
            await storage.settle(ends)
            done += len(ends)
        while await storage.purge(["bench"]):
            pass


class _Later:
    """The machine's clock, an hour on."""

    def time(self) -> float:
        import time

        return time.time() + 3600


async def run(engine: str, count: int) -> list[dict[str, Any]]:
    """Keys or rows before and after; an hour after the last job nothing may be left."""
    with storage_url(engine) as url:
        storage = connect(url)
        await storage.open()
        before = await rows_of(url)
        await _work(storage, count)
        await storage.close()
        later = connect(url, clock=_Later())
        await later.open()
        while await later.purge(["bench"]):
            pass
        await later.close()
        after = await rows_of(url)
    line = {"workload": "residue", "engine": engine, "jobs": count, "before": before, "after": after}
    print(json.dumps(line), flush=True)
    return [line]
