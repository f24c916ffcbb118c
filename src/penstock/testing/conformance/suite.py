"""The whole conformance suite, for third-party storages and for those of Penstock."""

from __future__ import annotations

from penstock.model.clock import Clock
from penstock.storage.base import Storage
from penstock.testing.conformance.producer import ProducerTests
from penstock.testing.conformance.reads import ReadTests
from penstock.testing.conformance.walk import Walk, take_walks
from penstock.testing.conformance.worker import WorkerTests

__all__ = ["StorageSuite"]


class StorageSuite(ProducerTests, WorkerTests, ReadTests):
    """Tests of the `Storage` protocol; pytest collects them from a subclass named `Test…`.

    `make` must return a new storage object on an empty database, file or server; every test clears it at
    its end. If `shared` is True, all objects that `make` returns in one test must see the same jobs.
    """

    #: Whether two storage objects that `make` returns in one test see the same jobs.
    shared = True
    #: How many random walks are compared with the storage in memory.
    walks = 50

    def make(self, clock: Clock) -> Storage:
        """Return a storage that is not open yet and uses this clock."""
        raise NotImplementedError(f"{type(self).__name__} must define make(self, clock) and return a storage")

    def test_a_random_walk_agrees_with_the_storage_in_memory(self) -> None:
        """Random calls in random order get the same answers from this storage and from the one in memory."""

        class Here(Walk):
            make = staticmethod(self.make)

        take_walks(Here, self.walks)
