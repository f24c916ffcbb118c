"""The clocks, random numbers and names of a simulated node, as the source that the code under test reads."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Protocol

from penstock.model.source import Source

__all__ = ["RunningNode", "source_of"]


class RunningNode(Protocol):
    """The part of a node that a source reads."""

    random: Random

    @property
    def pid(self) -> int: ...

    def time(self) -> float: ...

    def wall(self) -> float: ...


def source_of(current: Callable[[], RunningNode | None]) -> Source:
    """Return a source that reads the node that runs at the time of each call."""

    def running() -> RunningNode:
        node = current()
        assert node is not None, "no node runs now"
        return node

    return Source(
        monotonic=lambda: running().time(),
        wall=lambda: running().wall(),
        draw=lambda: running().random.random(),
        bytes=lambda count: running().random.randbytes(count),
        host=lambda: "simulated",
        pid=lambda: running().pid,
    )
