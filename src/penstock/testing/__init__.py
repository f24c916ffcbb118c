"""For your own tests: the real engine in memory, on a clock that you move.

Every function takes an app. With `penstock.Penstock` its answer is awaited; with `penstock.sync.Penstock` it
comes at once.
"""

from penstock.testing.assertions import assert_enqueued
from penstock.testing.clock import Clock
from penstock.testing.crash import crash
from penstock.testing.drain import drain
from penstock.testing.faults import FaultyStorage, trouble
from penstock.testing.inline import inline
from penstock.testing.memory import on_memory

__all__ = ["Clock", "FaultyStorage", "assert_enqueued", "crash", "drain", "inline", "on_memory", "trouble"]
