"""The suite for storages: ours pass it, and what is wrong does not."""

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
    """Memory, SQLite, Redis, Valkey and a Cluster pass the suite as it is shipped."""

    walks = 5

    @pytest.fixture(autouse=True)
    def place(self, backend: Backend) -> None:
        self.backend = backend
        self.shared = backend.shared

    def make(self, clock: Any) -> Storage:
        return self.backend.build(clock)


class Wrong:
    """The storage in memory, with one verb that does it wrong."""

    def __init__(self, storage: Storage, verb: str, wrong: Callable[..., Any]) -> None:
        self._storage = storage
        self._verb = verb
        self._wrong = wrong

    def __getattr__(self, verb: str) -> Any:
        if verb != self._verb:
            return getattr(self._storage, verb)
        return lambda *args, **options: self._wrong(self._storage, *args, **options)


async def accepts_all(storage: Storage, jobs: Any) -> list[Put]:
    answers = await storage.put(jobs)
    return [Put(PutStatus.QUEUED, each.state) for each in answers]


async def backwards(storage: Storage, *args: Any) -> Claimed:
    return Claimed((await storage.claim(*args)).claims[::-1])


async def believes_all(storage: Storage, settlements: Any) -> list[Settled]:
    answers = await storage.settle(settlements)
    return [Settled(each.state, lost=False) for each in answers]


async def never_takes_back(storage: Storage, queues: Any, limit: int = MAX_BATCH) -> list[Any]:
    return []


async def forgets_nothing(storage: Storage, queues: Any, limit: int = MAX_BATCH) -> int:
    return 0


async def never_wakes(storage: Storage, queues: Any, timeout: float) -> bool:
    return False


WRONG = {
    "put": accepts_all,
    "claim": backwards,
    "settle": believes_all,
    "reap": never_takes_back,
    "purge": forgets_nothing,
    "wait_work": never_wakes,
}


def failures(suite: StorageSuite) -> list[str]:
    """The tests that a storage does not pass, the walk aside."""
    failed: list[str] = []
    for name in dir(suite):
        if name.startswith("test_") and "random_walk" not in name:
            try:
                getattr(suite, name)()
            except AssertionError:
                failed.append(name)
    return failed


@pytest.mark.parametrize("verb", WRONG)
def test_what_is_wrong_is_found(verb: str) -> None:
    """A storage with one verb that does not keep its promise fails the suite."""

    class Suite(StorageSuite):
        shared = False

        def make(self, clock: Clock) -> Any:
            return Wrong(connect("memory:", clock=clock), verb, WRONG[verb])

    assert failures(Suite())


def test_the_walk_finds_what_no_example_shows() -> None:
    """A random walk fails when a storage answers otherwise than the one in memory."""

    async def miscounts(storage: Storage, queue: str) -> Any:
        return dict.fromkeys(await storage.counts(queue), 0)

    class Suite(StorageSuite):
        def make(self, clock: Clock) -> Any:
            return Wrong(connect("memory:", clock=clock), "counts", miscounts)

    with pytest.raises(AssertionError, match="counts"):
        Suite().test_a_random_walk_agrees_with_the_storage_in_memory()


def test_a_suite_must_say_what_it_tests() -> None:
    """Without `make` the error says what is missing."""
    with pytest.raises(NotImplementedError, match="must define make"):
        StorageSuite().test_names_are_opaque()
