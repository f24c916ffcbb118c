"""Does anything stay behind? Many jobs of every kind are worked off, their TTLs pass, and the storage is counted."""

from __future__ import annotations

import asyncio
import time

from bench.cases import Reading, note
from bench.lines import Book
from bench.server import Storage as Place
from bench.systems import ours
from penstock._version import __version__
from penstock.model.ids import new_ids, new_token
from penstock.model.job import NewJob
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
        return time.time() + 3600


async def _run(place: Place, count: int) -> tuple[int, int]:
    """Keys or rows before and after; an hour after the last job nothing may be left."""
    storage = connect(place.url)
    await storage.open()
    before = place.size()
    await _work(storage, count)
    await storage.close()
    later = connect(place.url, clock=_Later())
    await later.open()
    while await later.purge(["bench"]):
        pass
    await later.close()
    return before, place.size()


def run(place: Place, book: Book, full: bool) -> list[str]:
    """Once: counting needs no repetition."""
    count = 1_000_000 if full else 20_000
    place.clear()
    before, after = asyncio.run(_run(place, count))
    notes = {"before": before, "after": after}
    reading = Reading("residue", "keys or rows left", after - before, jobs=count, notes=notes)
    note(book, ours(), place, {"version": __version__, "loop": None}, reading)
    return [] if after == before else [f"residue on {place.kind}: {before} before, {after} after"]
