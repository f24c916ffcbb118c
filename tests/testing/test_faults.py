"""`trouble`: chosen calls of a storage that fail."""

from __future__ import annotations

from typing import Any, cast

import pytest

from penstock import Limit, StorageUnavailable, sync
from penstock.limit_changes import limiting_of
from penstock.storage import connect
from penstock.storage.base import Storage
from penstock.testing import Clock, drain, trouble
from penstock.testing.faults import FaultyStorage
from tests.testing.conftest import Shop, double


async def test_chosen_calls_fail(shop: Shop, clock: Clock) -> None:
    """A failed call changes nothing, with `after` only its answer is lost; after the block all calls work."""
    async with shop.app as app:
        queue = app.queue("charge")
        with trouble(app) as storage:
            storage.fail("put")
            storage.fail("put", after=True, skip=1)
            with pytest.raises(StorageUnavailable, match="put is made to fail"):
                await queue.enqueue("ann")
            await queue.enqueue("bob")
            with pytest.raises(StorageUnavailable):
                await queue.enqueue("cat")
            assert storage.calls["put"] == 3
            storage.down = True
            with pytest.raises(StorageUnavailable, match="down"):
                await queue.counts()
        assert [job.payload for job in await queue.find()] == ["bob", "cat"]


async def test_a_worker_retries_a_failed_settle(shop: Shop, clock: Clock) -> None:
    """Settle fails twice, and the job still runs only once."""
    async with shop.app as app:
        with trouble(app) as storage:
            await app.queue("charge").enqueue("ann")
            storage.fail("settle", times=2)
            await drain(app)
        assert shop.charged == ["ann 0", "receipt for ann"]


async def test_changes_of_limits_fail(shop: Shop, clock: Clock) -> None:
    """The verbs of limits can be made to fail as any other."""
    async with shop.app as app:
        with trouble(app) as storage:
            storage.fail("set_limit")
            with pytest.raises(StorageUnavailable, match="set_limit is made to fail"):
                await app.queue("charge").set_limit(Limit(concurrency=2))
        assert (await app.queue("charge").limit()).limit is None


async def test_a_wrapped_storage_has_the_limits_of_the_one_behind_it() -> None:
    """A wrapper whose class has none of the verbs of limits forwards them."""
    storage = connect("memory:")
    wrapper: Any = FaultyStorage(storage)
    assert limiting_of(wrapper) is wrapper
    assert limiting_of(cast("Storage", object())) is None


async def test_an_unknown_verb_is_a_value_error(shop: Shop, clock: Clock) -> None:
    """An unknown verb is a `ValueError` that lists the known ones."""
    with trouble(shop.app) as storage, pytest.raises(ValueError, match="no 'sette' that can fail; known: put, claim,"):
        storage.fail("sette")


def test_trouble_of_a_sync_app(plain: sync.Penstock, plain_clock: Clock) -> None:
    """Calls of a sync app and of its worker fail alike."""
    with trouble(plain) as storage:
        storage.fail("put")
        with pytest.raises(StorageUnavailable):
            plain.queue("q").enqueue(1)
        plain.queue("q").enqueue(2)
        storage.fail("claim")
        assert [event.result for event in drain(plain)] == [double(2)]
