"""Event feeds of one process on SQLite: one that is gone takes no other with it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from penstock.storage.base import EventRecord
from penstock.storage.sqlite import SqliteStorage


async def test_a_forgotten_feed_leaves_the_other_feeds_of_its_process_registered(tmp_path: Path) -> None:
    """The next event deletes the row of a feed that was collected; another feed gets that event and later ones."""
    storage = SqliteStorage(str(tmp_path / "jobs.db"))
    await storage.open()
    try:
        forgotten = storage.events(names=["idle"])
        await storage.time()
        del forgotten  # its row is left
        feed = storage.events(names=["idle"])
        for id in "abc":
            await storage.announce([EventRecord("idle", "q", id, 0)])
            async with asyncio.timeout(5):
                assert (await anext(feed)).id == id
    finally:
        await storage.close()
