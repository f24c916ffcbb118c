"""Leases of all children, kept from outside of the processes that run the code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from penstock.claims import renew_all
from penstock.host import AppHost
from penstock.storage.base import ClaimRef, Renewal
from penstock.worker.supervisor.child_handle import ChildHandle, Stage
from penstock.worker.supervisor.claim_table import ParentCommand, Phase, Slot, Verdict

__all__ = ["LeaseRenewer"]


class ChildClaim:
    """A claim of a child."""

    __slots__ = ("hand", "slot")

    def __init__(self, hand: ChildHandle, slot: Slot) -> None:
        self.hand = hand
        self.slot = slot

    @property
    def ref(self) -> ClaimRef:
        return self.slot.ref

    @property
    def confirmed(self) -> float:
        return self.slot.confirmed

    @confirmed.setter
    def confirmed(self, at: float) -> None:
        self.hand.table.confirm(self.slot, at)


class LeaseRenewer:
    """Renews what the boards name, and passes on what the storage says of it."""

    def __init__(self, host: AppHost, worker: str, lease: float, hands: Callable[[], Sequence[ChildHandle]]) -> None:
        self._host = host
        self._worker = worker
        self.seconds = lease
        self._hands = hands
        #: Grows with every renewal that was heard.
        self.rounds = 0

    async def step(self) -> float | None:
        """Renew every claim of every child, by name."""
        self.fence(time.monotonic())
        storage, lease_ms = self._host.storage, round(self.seconds * 1000)
        await renew_all(storage, self._worker, self.late(math.inf), lease_ms, self._answered, time.monotonic)
        return self.seconds / 3

    def _answered(self, leases: Sequence[ChildClaim], answers: Sequence[Renewal], asked: float) -> None:
        self.rounds += 1
        self.renewed(leases, answers, asked)

    def late(self, since: float) -> list[ChildClaim]:
        """The claims that were not confirmed since this time, those of one token together. Any thread may ask."""
        named = [
            ChildClaim(hand, slot) for hand in list(self._hands()) if not hand.killed for slot in hand.table.held()
        ]
        named = [n for n in named if n.confirmed < since and n.hand.table.ordered(n.slot) is not ParentCommand.LOST]
        return sorted(named, key=lambda each: each.ref.token)

    def fence(self, now: float) -> None:
        """A child with a run that was not confirmed within its lease is ended, and reports nothing.

        The job may run elsewhere by now. If other claims of the child are good, only the run is ended.
        """
        for hand in self._hands():
            if hand.killed or hand.stage is Stage.DEAD:
                continue
            stale = hand.table.unconfirmed(now - self.seconds)
            if not stale:
                continue
            keys = {slot.key for slot in stale}
            if all(slot.key in keys for slot in hand.table.held() if slot.phase is Phase.RUNNING):
                hand.fenced = True
                hand.kill(dict.fromkeys(keys, Verdict.LOSS))
                continue
            for slot in stale:
                self._lose(hand, slot)
            hand.send("look")

    def renewed(self, leases: Sequence[ChildClaim], answers: Sequence[Renewal], asked: float) -> None:
        """What the storage said of these claims, asked at this time."""
        spoken_to: set[ChildHandle] = set()
        for named, answer in zip(leases, answers, strict=True):
            hand, slot = named.hand, named.slot
            if hand.stage is Stage.DEAD:
                continue
            if not answer.kept:
                # After the end it may be lost because it is recorded: the child knows.
                if slot.phase is not Phase.ENDED:
                    self._lose(hand, slot)
                    spoken_to.add(hand)
                continue
            named.confirmed = asked
            wanted = {"signal": ParentCommand.SIGNAL, "kill": ParentCommand.KILL}.get(
                answer.cancel or "", ParentCommand.NONE
            )
            if wanted > hand.table.ordered(slot):
                hand.table.give(slot, wanted)
                spoken_to.add(hand)
                if wanted is ParentCommand.KILL:
                    hand.set_deadline(slot, Verdict.KILL)
        for hand in spoken_to:
            hand.send("look")

    def _lose(self, hand: ChildHandle, slot: Slot) -> None:
        hand.table.give(slot, ParentCommand.LOST)
        hand.set_deadline(slot, Verdict.LOSS)
