"""How fast are the verbs? Put, then claim and settle, in batches, with every kind of job."""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from bench.server import storage_url
from penstock.job import NewJob, new_ids, new_token
from penstock.storage import connect
from penstock.storage.base import Complete, Request, Settlement, Storage

PAYLOAD = b'{"user": 12345, "action": "resize", "size": [640, 480]}'
KINDS = ("plain", "ids", "priorities", "groups")
BATCH = 100


def _jobs(kind: str, at: int, count: int) -> list[NewJob]:
    jobs: list[NewJob] = []
    for i, id in enumerate(new_ids(count), at):
        options: dict[str, Any] = {"fresh": kind != "ids"}
        if kind == "priorities":
            options["priority"] = i % 5
        elif kind == "groups":
            options["group"] = f"group-{i % 1000}"
        jobs.append(NewJob(queue="bench", id=id, payload=PAYLOAD, **options))
    return jobs


async def _once(storage: Storage, kind: str, count: int) -> tuple[float, float]:
    """Puts per second, and claims with settlements per second."""
    start = time.perf_counter()
    for at in range(0, count, BATCH * 5):
        await storage.put(_jobs(kind, at, BATCH * 5))
    put = time.perf_counter() - start
    start = time.perf_counter()
    done = 0
    while done < count:
        claimed = await storage.claim([Request("bench", BATCH)], "bench", 60_000, new_token())
        await storage.settle([Settlement(c.queue, c.id, c.token, Complete(b"null", 3_600_000)) for c in claimed.claims])
        done += len(claimed.claims)
    work = time.perf_counter() - start
    await storage.delete_queue("bench")
    return count / put, count / work


async def run(engine: str, count: int) -> list[dict[str, Any]]:
    """One line per kind of job: the median of three runs, and the spread."""
    lines: list[dict[str, Any]] = []
    for kind in KINDS:
        with storage_url(engine) as url:
            storage = connect(url)
            await storage.open()
            results = [await _once(storage, kind, count) for _ in range(3)]
            await storage.close()
        puts, works = zip(*results, strict=True)
        line = {
            "workload": "cycle", "engine": engine, "kind": kind, "jobs": count,
            "put_per_s": round(statistics.median(puts)), "put_spread": [round(min(puts)), round(max(puts))],
            "work_per_s": round(statistics.median(works)), "work_spread": [round(min(works)), round(max(works))],
        }  # fmt: skip
        print(json.dumps(line), flush=True)
        lines.append(line)
    return lines
