"""Tests of the `Storage` protocol for your own storage: subclass `StorageSuite` and define `make`."""

from penstock.testing.conformance.suite import StorageSuite

__all__ = ["StorageSuite"]
