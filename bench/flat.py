"""Does the cost of a job stay flat? Claim and settle beside ever more waiting jobs, scheduled jobs and groups.

For each backlog: fill it, then claim and settle jobs in batches of ten, three times, and count the
CPU time that this costs here and in the server (other work on the machine disturbs that less than
the wall clock). The median is compared with the smallest backlog of its kind. Afterwards the queue
is deleted, and the number of keys or rows must be what it was.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from bench.cases import Reading, note
from bench.lines import REPETITIONS, Book
from bench.server import Storage as Place
from bench.systems import ours
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
from penstock.storage import connect
from penstock.storage.base import Claimed, Complete, Request, Settlement, Storage

PAYLOAD = b'{"user":12345,"action":"resize","size":[640,480]}'
CHUNK = 1000
BATCH = 10
JOBS_PER_ROUND = 2000


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


async def _cycle(storage: Storage, place: Place, jobs: int) -> tuple[float, float]:
    """CPU microseconds per job to claim and settle, here and in the server; the backlog is kept full by putting."""
    here = there = 0.0
    done = 0
    while done < jobs:
        server, client = place.cpu(), time.process_time()
        claimed: Claimed = await storage.claim([Request("bench", BATCH)], "bench", 60_000, new_token())
        ends = [Settlement(c.queue, c.id, c.token, Complete(b"null", 1)) for c in claimed.claims]
        await storage.settle(ends)
        here += time.process_time() - client
        there += place.cpu() - server
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
    return here / done * 1e6, there / done * 1e6


async def _empty(storage: Storage, place: Place, before: int) -> int:
    """Delete the queue; a large one is taken away in bounded steps. Gives what is left behind."""
    await storage.delete_queue("bench")
    after = place.size()
    while after > before:
        await storage.purge(["bench"])
        left, after = after, place.size()
        if after == left:
            break
    return after - before


async def _case(place: Place, kind: str, count: int, lanes: int, small: int) -> tuple[list[tuple[float, float]], int]:
    place.clear()
    storage = connect(place.url)
    await storage.open()
    before = place.size()
    if kind == "scheduled":
        await _fill(storage, small, "waiting", 1)
    await _fill(storage, count, kind, lanes or 1)
    costs = [await _cycle(storage, place, JOBS_PER_ROUND) for _ in range(REPETITIONS)]
    left = await _empty(storage, place, before)
    await storage.close()
    return costs, left


def run(place: Place, book: Book, full: bool) -> list[str]:
    """One measure per backlog: µs per job, and its ratio to the smallest of its kind."""
    sizes, groups = sizes_for(full)
    cases = [("waiting", n, 0) for n in sizes] + [("scheduled", n, 0) for n in sizes]
    cases += [("groups", max(g, min(sizes)), g) for g in groups]
    base: dict[str, float] = {}
    for kind, count, lanes in cases:
        costs, left = asyncio.run(_case(place, kind, count, lanes, sizes[0]))
        cost = statistics.median(sum(both) for both in costs)
        notes = {"ratio": round(cost / base.setdefault(kind, cost), 2), "left_behind": left}
        for here, there in costs:
            server = there if place.process is not None else None
            name, unit = f"flat/{kind}/{lanes or count}", "CPU µs/job"
            reading = Reading(name, unit, here + there, here, server, JOBS_PER_ROUND, notes)
            note(book, ours(), place, {"version": __version__, "loop": None}, reading)
    return []


def sizes_for(full: bool) -> tuple[list[int], list[int]]:
    return ([1000, 100_000, 1_000_000], [10, 1000, 100_000]) if full else ([1000, 20_000], [10, 1000])
