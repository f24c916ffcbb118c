"""What every storage must do, as tests: subclass `StorageSuite` and say how your storage is made."""

from penstock.testing.conformance.suite import StorageSuite

__all__ = ["StorageSuite"]
