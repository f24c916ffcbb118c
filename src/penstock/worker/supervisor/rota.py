"""The rota of idle children: one of them waits for work at a time, so that any number costs as few calls as one."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.worker.supervisor.channel import ToChild
from penstock.worker.supervisor.child_handle import ChildHandle, Stage
from penstock.worker.supervisor.child_rota import IDLE_FOR
from penstock.worker.supervisor.claim_table import LIVE

__all__ = ["RotaKeeper"]


class RotaKeeper:
    """The supervisor's part: begins the rota when all children are idle, and ends it when one has a job or is gone.

    A child that has had a job since answers `busy`. The turns follow from the monotonic clock, which all processes
    share: a child that hangs delays nothing for longer than its own turn.
    """

    def __init__(self) -> None:
        self._idle_since: float | None = None
        #: The children of the rota, in the order of their turns.
        self._children: list[ChildHandle] = []

    def look(self, children: Sequence[ChildHandle], now: float) -> None:
        """Begin the rota if these children have been idle for long enough; end it if one is not, or has changed."""
        idle = all(
            child.stage is Stage.WORKING and not child.replacing and not child.table.head[LIVE] for child in children
        )
        if not idle or (self._children and self._children != children):
            return self.end(children)
        if self._idle_since is None:
            self._idle_since = now
        if not self._children and len(children) > 1 and now - self._idle_since >= IDLE_FOR:
            self._children = list(children)
            for position, child in enumerate(children):
                child.send(f"{ToChild.ROTA}{position} {len(children)}")

    def end(self, children: Sequence[ChildHandle]) -> None:
        """Have every child wait for work by itself from now on."""
        self._idle_since = None
        if self._children:
            self._children = []
            for child in children:
                child.send(ToChild.ROTA_OVER)
