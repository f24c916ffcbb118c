"""Tools for tests of your own app: the real engine in memory, on a clock that the test moves.

Every function takes an app. With a `penstock.Penstock` its answer is awaited; with a `penstock.sync.Penstock`
it is returned at once.
"""

# `crash`, `drain` and `inline` are functions of modules of the same name. The functions are imported after their
# modules, so `penstock.testing.drain` is the function; code that needs the module imports from it by its full name.

from penstock.testing.assertions import assert_enqueued
from penstock.testing.clock import Clock
from penstock.testing.crash import crash
from penstock.testing.drain import drain
from penstock.testing.faults import FaultyStorage, trouble
from penstock.testing.inline import inline
from penstock.testing.memory import on_memory
from penstock.testing.simulation.simulate import SimulationReport, simulate

__all__ = [
    "Clock",
    "FaultyStorage",
    "SimulationReport",
    "assert_enqueued",
    "crash",
    "drain",
    "inline",
    "on_memory",
    "simulate",
    "trouble",
]
