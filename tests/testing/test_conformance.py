"""The conformance suite: Penstock's storages pass it, and broken ones fail it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock.model.clock import Clock
from penstock.storage import connect
from penstock.storage.base import MAX_BATCH, Claimed, Put, PutStatus, Settled, Storage
from penstock.testing.conformance import StorageSuite
from tests.support import Backend


@pytest.mark.beyond_model
class TestEveryStorage(StorageSuite):
    """The suite as shipped, on memory, SQLite, Redis, Valkey and a Cluster."""

    walks = 5

    @pytest.fixture(autouse=True)
    def use_backend(self, backend: Backend) -> None:
        self.backend = backend
        self.shared = backend.shared

    def make(self, clock: Any) -> Storage:
        return self.backend.build(clock)


class BrokenStorage:
    """The storage in memory with one broken verb."""

    def __init__(self, storage: Storage, verb: str, broken: Callable[..., Any]) -> None:
        self._storage = storage
        self._verb = verb
        self._broken = broken

    def __getattr__(self, verb: str) -> Any:
        if verb != self._verb:
            return getattr(self._storage, verb)
        return lambda *args, **options: self._broken(self._storage, *args, **options)


async def accept_duplicates(storage: Storage, *args: Any) -> list[Put]:
    answers = await storage.put(*args)
    return [Put(PutStatus.QUEUED, each.state) for each in answers]


async def claim_reversed(storage: Storage, *args: Any) -> Claimed:
    return Claimed((await storage.claim(*args)).claims[::-1])


async def accept_stale_tokens(storage: Storage, settlements: Any) -> list[Settled]:
    answers = await storage.settle(settlements)
    return [Settled(each.state, lost=False) for each in answers]


async def never_reap(storage: Storage, queues: Any, limit: int = MAX_BATCH) -> list[Any]:
    return []


async def never_purge(storage: Storage, queues: Any, limit: int = MAX_BATCH) -> int:
    return 0


async def never_discard(storage: Storage, queue: str, ids: Any, *others: Any) -> list[str]:
    return ["not_found" for _ in ids]


async def never_wake(storage: Storage, queues: Any, timeout: float) -> bool:
    return False


BROKEN_VERBS = {
    "put": accept_duplicates,
    "claim": claim_reversed,
    "settle": accept_stale_tokens,
    "reap": never_reap,
    "purge": never_purge,
    "discard": never_discard,
    "wait_work": never_wake,
}


def failures(suite: StorageSuite) -> list[str]:
    """Return the names of the tests that a storage fails, without the random walk."""
    failed: list[str] = []
    for name in dir(suite):
        if name.startswith("test_") and "random_walk" not in name:
            try:
                getattr(suite, name)()
            except AssertionError:
                failed.append(name)
    return failed


@pytest.mark.parametrize("verb", BROKEN_VERBS)
def test_a_storage_with_a_broken_verb_fails_the_suite(verb: str) -> None:
    """A storage with one broken verb fails at least one test of the suite."""

    class Suite(StorageSuite):
        shared = False

        def make(self, clock: Clock) -> Any:
            return BrokenStorage(connect("memory:", clock=clock), verb, BROKEN_VERBS[verb])

    assert failures(Suite())


def test_a_broken_read_fails_the_random_walk() -> None:
    """The random walk fails if a storage answers differently from the one in memory."""

    async def count_zero(storage: Storage, queue: str) -> Any:
        return dict.fromkeys(await storage.counts(queue), 0)

    class Suite(StorageSuite):
        def make(self, clock: Clock) -> Any:
            return BrokenStorage(connect("memory:", clock=clock), "counts", count_zero)

    with pytest.raises(AssertionError, match="counts"):
        Suite().test_a_random_walk_agrees_with_the_storage_in_memory()


def test_a_suite_without_make_is_an_error() -> None:
    """A suite without `make` raises a `NotImplementedError` that names it."""
    with pytest.raises(NotImplementedError, match="must define make"):
        StorageSuite().test_names_are_opaque()
