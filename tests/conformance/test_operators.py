"""log_activity, put_bulk, add_release and ask_worker: records about operators, and requests to workers."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from penstock.model.activity import ACTIVITY_MS, BULK_MS, MAX_RELEASES, REQUEST_MS, Activity, BulkAction, Release
from penstock.storage.auditing import Auditing
from penstock.storage.base import Storage
from tests.support import HOUR, SECOND, T0, Clock

pytestmark = [pytest.mark.beyond_model, pytest.mark.one_per_engine]


def auditing(storage: Storage) -> Auditing:
    assert isinstance(storage, Auditing)
    return storage


def action(**fields: object) -> BulkAction:
    given = {"id": "b", "who": "ann", "verb": "retry", "filter": "state:failed", "as_of": T0, "starts_at": T0 + 5000}
    return BulkAction(**(given | fields))  # type: ignore[arg-type]


async def test_the_activity_lists_the_newest_first_with_the_storages_time(storage: Storage, clock: Clock) -> None:
    """Entries come in pages, and can be those about one queue, or about one job."""
    operators = auditing(storage)
    for n in range(5):
        await operators.log_activity(
            Activity(
                who="ann", verb="cancel", via="cli", queue="q" if n % 2 else "other", ids=(str(n),), outcome="done"
            )
        )
        clock.advance(ms=SECOND)
    first = await operators.activity(limit=2)
    assert [(entry.ids, entry.at) for entry in first.entries] == [(("4",), T0 + 4 * SECOND), (("3",), T0 + 3 * SECOND)]
    assert first.entries[0].count == 1
    rest = await operators.activity(after=first.cursor, limit=10)
    assert ([entry.ids[0] for entry in rest.entries], rest.cursor) == (["2", "1", "0"], None)
    some = await operators.activity("q", limit=1)
    assert [entry.ids[0] for entry in some.entries] == ["3"]
    assert [entry.ids[0] for entry in (await operators.activity("q", after=some.cursor)).entries] == ["1"]
    assert (await operators.activity("q", "2")).entries == []
    assert [entry.verb for entry in (await operators.activity("other", "2")).entries] == ["cancel"]
    with pytest.raises(ValueError, match="after"):
        await operators.activity(after="x")


async def test_of_the_activity_the_newest_entries_of_90_days_are_kept(
    storage: Storage, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More entries than fit push out the oldest, and those that are too old are not listed."""
    for module in ("sqlite.activity", "redis.auditing"):
        monkeypatch.setattr(f"penstock.storage.{module}.MAX_ACTIVITY", 3)
    operators = auditing(storage)
    for n in range(5):
        await operators.log_activity(Activity(who="ann", verb=str(n), ids=tuple("abcdefghijklmn"), count=99))
    found = (await operators.activity()).entries
    assert [entry.verb for entry in found] == ["4", "3", "2"]
    assert (found[0].ids, found[0].count) == (tuple("abcdefghij"), 99)
    clock.advance(ms=ACTIVITY_MS)
    assert (await operators.activity()).entries == []
    await operators.log_activity(Activity(who="ann", verb="new"))
    await storage.purge([])
    assert [entry.verb for entry in (await operators.activity()).entries] == ["new"]


async def test_a_bulk_action_is_changed_by_one_who_knows_its_version(storage: Storage, clock: Clock) -> None:
    """A change with another version is refused; a record is kept for a day after its last change."""
    operators = auditing(storage)
    assert await operators.get_bulk("b") is None
    assert await operators.put_bulk(action(version=7)) is None
    assert await operators.put_bulk(action()) == 1
    assert await operators.put_bulk(action()) is None
    clock.advance(ms=SECOND)
    assert await operators.put_bulk(action(state="running", done=500, version=1)) == 2
    expected = action(state="running", done=500, version=2, changed_at=T0 + SECOND)
    assert await operators.get_bulk("b") == expected
    assert await operators.put_bulk(action(id="c", starts_at=T0 + HOUR)) == 1
    assert [each.id for each in await operators.bulk_actions()] == ["c", "b"]
    assert [each.id for each in await operators.bulk_actions(1)] == ["c"]
    clock.advance(ms=BULK_MS)
    assert await operators.get_bulk("b") is None
    assert await operators.bulk_actions() == []
    assert await operators.put_bulk(action()) == 1


async def test_an_action_whose_process_died_is_stopped() -> None:
    """A record that is open and does not change any more reads as stopped; one that is over stays as it is."""
    running = replace(action(state="running"), changed_at=T0)
    assert running.state_at(T0 + 60_000) == "running"
    assert running.state_at(T0 + 60_001) == "stopped"
    assert replace(action(), changed_at=T0).state_at(T0 + 65_000) == "waiting"
    assert replace(running, state="done").state_at(T0 + HOUR) == "done"


async def test_releases_are_noted_once_and_the_last_50_kept(storage: Storage, clock: Clock) -> None:
    """A name is noted when it comes first; the newest come first."""
    operators = auditing(storage)
    assert await operators.add_release("v1")
    clock.advance(ms=SECOND)
    assert not await operators.add_release("v1")
    assert await operators.add_release("v2")
    assert await operators.releases() == [Release("v2", T0 + SECOND), Release("v1", T0)]
    for n in range(MAX_RELEASES):
        clock.advance(ms=1)
        await operators.add_release(f"w{n}")
    names = [release.name for release in await operators.releases()]
    assert names == [f"w{n}" for n in reversed(range(MAX_RELEASES))]


async def test_a_worker_gets_a_request_with_its_heartbeats_for_a_minute(storage: Storage, clock: Clock) -> None:
    """The request is for the live worker of this id, not for one that comes later."""
    operators = auditing(storage)
    assert not await operators.ask_worker("w", "quiet")
    assert await storage.beat("w", HOUR) is None
    assert await operators.ask_worker("w", "quiet")
    assert [await storage.beat("w", HOUR) for _ in range(2)] == ["quiet", "quiet"]
    assert await operators.ask_worker("w", "stop")
    assert await storage.beat("v", HOUR) is None
    assert await storage.beat("w", HOUR) == "stop"
    clock.advance(ms=REQUEST_MS)
    assert await storage.beat("w", HOUR) is None
    await operators.ask_worker("w", "stop")
    await storage.beat("w", 0)
    assert await storage.beat("w", SECOND) is None
    await operators.ask_worker("w", "stop")
    clock.advance(ms=SECOND)
    assert [await storage.beat("w", HOUR) for _ in range(2)] == [None, None]


async def test_a_request_wakes_the_worker_that_waits_for_cancels(storage: Storage) -> None:
    """`wait_cancel` ends with a request, so that a busy worker acts at once."""
    await storage.beat("w", HOUR)
    while not await storage.wait_cancel("w", 0.01):
        pass  # the first may end at once: there may have been a request before
    waiting = asyncio.ensure_future(storage.wait_cancel("w", 30))
    await asyncio.sleep(0)
    assert await auditing(storage).ask_worker("w", "stop")
    assert await waiting
