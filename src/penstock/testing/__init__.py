"""For your own tests: the real engine in memory, on a clock that you move.

Every function takes an app. With `penstock.Penstock` its answer is awaited; with `penstock.sync.Penstock` it
comes at once.
"""

from penstock.testing.clock import Clock
from penstock.testing.crashing import crash
from penstock.testing.draining import drain
from penstock.testing.enqueued import assert_enqueued
from penstock.testing.inlining import inline
from penstock.testing.memory import on_memory
from penstock.testing.troubling import Trouble, trouble

__all__ = ["Clock", "Trouble", "assert_enqueued", "crash", "drain", "inline", "on_memory", "trouble"]
