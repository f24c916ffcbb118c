"""The whole suite, for the storages of others and for our own."""

from __future__ import annotations

from penstock.model.clock import Clock
from penstock.storage.base import Storage
from penstock.testing.conformance.producer import ProducerTests
from penstock.testing.conformance.reads import ReadTests
from penstock.testing.conformance.walk import Walk, take_walks
from penstock.testing.conformance.worker import WorkerTests

__all__ = ["StorageSuite"]


class StorageSuite(ProducerTests, WorkerTests, ReadTests):
    """Tests that a storage keeps the `Storage` protocol; pytest collects them from a subclass called `Test…`.

    `make` must give a new storage object at an empty place; every test empties it when it ends. Each of
    its objects at that place must see the jobs of the others if `shared` is True.
    """

    #: Whether two storage objects that `make` gives in one test see the same jobs.
    shared = True
    #: How many random walks are compared with the storage in memory.
    walks = 50

    def make(self, clock: Clock) -> Storage:
        """A storage that is not open yet and goes by this clock."""
        raise NotImplementedError(f"{type(self).__name__} must have a method make(self, clock) that gives a storage")

    def test_a_random_walk_agrees_with_the_storage_in_memory(self) -> None:
        """Whatever is asked in whatever order, the answers are those of the storage in memory."""

        class Here(Walk):
            make = staticmethod(self.make)

        take_walks(Here, self.walks)
