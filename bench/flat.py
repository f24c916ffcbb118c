"""Does the cost of a job stay flat? Claim and settle beside ever more waiting jobs, scheduled jobs and groups.

For each backlog: fill it, then claim and settle jobs in batches of ten, three times, and count the
CPU time that this costs here and in the server (other work on the machine disturbs that less than
the wall clock). The median is compared with the smallest backlog of its kind. Afterwards the queue
is deleted, and the number of keys or rows must be what it was.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from typing import Any
from urllib.parse import urlsplit

from bench.server import rows_of, storage_url
from penstock.job import NewJob, new_ids, new_token
from penstock.storage import connect
from penstock.storage.base import Claimed, Complete, Request, Settlement, Storage

PAYLOAD = b'{"user": 12345, "action": "resize", "size": [640, 480]}'
CHUNK = 1000
BATCH = 10
ROUNDS, JOBS_PER_ROUND = 3, 2000


async def _fill(storage: Storage, count: int, kind: str, groups: int) -> None:
    soon = await storage.time() + 3_600_000
    for at in range(0, count, CHUNK):
        ids = new_ids(min(CHUNK, count - at))
        options: dict[str, Any] = {"run_at": soon} if kind == "scheduled" else {}
        await storage.put(
            [
                NewJob(
                    queue="bench", id=id, payload=PAYLOAD, fresh=True, **options,
                    group=f"group-{(at + i) % groups}" if kind == "groups" else None,
                )
                for i, id in enumerate(ids)
            ]
        )  # fmt: skip


class _Server:
    """The time that the server has spent in scripts; an SQLite file has no server."""

    def __init__(self, url: str) -> None:
        self._client: Any = None
        if url.startswith("redis:"):
            from redis import Redis

            parts = urlsplit(url)
            self._client = Redis(host=parts.hostname or "127.0.0.1", port=parts.port or 6379)

    def seconds(self) -> float:
        if self._client is None:
            return 0.0
        stats = self._client.info("commandstats")
        return sum(stats.get(f"cmdstat_{name}", {"usec": 0})["usec"] for name in ("evalsha", "eval")) / 1e6

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


async def _cycle(storage: Storage, url: str, jobs: int) -> float:
    """CPU microseconds per job to claim and settle, the backlog kept full by putting as many."""
    spent = 0.0
    done = 0
    server = _Server(url)
    while done < jobs:
        there, here = server.seconds(), time.process_time()
        claimed: Claimed = await storage.claim([Request("bench", BATCH)], "bench", 60_000, new_token())
        ends = [Settlement(c.queue, c.id, c.token, Complete(b"null", 1)) for c in claimed.claims]
        await storage.settle(ends)
        here = time.process_time() - here
        spent += here + server.seconds() - there
        done += len(claimed.claims)
        groups = [claim.group for claim in claimed.claims]
        fresh = new_ids(len(groups))
        await storage.put(
            [
                NewJob(queue="bench", id=id, payload=PAYLOAD, fresh=True, group=g)
                for id, g in zip(fresh, groups, strict=True)
            ]
        )
        while await storage.purge(["bench"]):
            pass
    server.close()
    return spent / done * 1e6


async def run(engine: str, sizes: list[int], groups: list[int]) -> list[dict[str, Any]]:
    """One line per backlog: µs per job, and its ratio to the smallest of its kind."""
    lines: list[dict[str, Any]] = []
    cases = [("waiting", n, 0) for n in sizes] + [("scheduled", n, 0) for n in sizes]
    cases += [("groups", max(g, min(sizes)), g) for g in groups]
    base: dict[str, float] = {}
    for kind, count, lanes in cases:
        with storage_url(engine) as url:
            storage = connect(url)
            await storage.open()
            before = await rows_of(url)
            if kind == "scheduled":
                await _fill(storage, sizes[0], "waiting", 1)
            await _fill(storage, count, kind, lanes or 1)
            costs = [await _cycle(storage, url, JOBS_PER_ROUND) for _ in range(ROUNDS)]
            await storage.delete_queue("bench")
            after = await rows_of(url)
            while after > before:  # a large queue is taken away in bounded steps
                await storage.purge(["bench"])
                left, after = after, await rows_of(url)
                if after == left:
                    break
            await storage.close()
        cost = statistics.median(costs)
        first = base.setdefault(kind, cost)
        line = {
            "workload": "flat", "engine": engine, "kind": kind, "backlog": lanes or count,
            "us_per_job": round(cost, 1), "spread": [round(min(costs), 1), round(max(costs), 1)],
            "ratio": round(cost / first, 2), "left_behind": after - before,
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        lines.append(line)
    return lines


def sizes_for(full: bool) -> tuple[list[int], list[int]]:
    return ([1000, 100_000, 1_000_000], [10, 1000, 100_000]) if full else ([1000, 50_000], [10, 1000, 10_000])


if __name__ == "__main__":
    sys.exit("run it as: python -m bench flat")
