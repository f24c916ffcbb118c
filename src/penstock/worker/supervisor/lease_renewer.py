"""Leases of all children, kept from outside of the processes that run the code."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from penstock.host import Host
from penstock.storage.base import MAX_BATCH, Held, Renewal
from penstock.worker.supervisor.child_handle import Hand, Stage
from penstock.worker.supervisor.claim_table import Order, Phase, Slot, Verdict

__all__ = ["Renewals"]


class Named:
    """A claim of a child."""

    __slots__ = ("hand", "slot")

    def __init__(self, hand: Hand, slot: Slot) -> None:
        self.hand = hand
        self.slot = slot

    @property
    def held(self) -> Held:
        return self.slot.held

    @property
    def confirmed(self) -> float:
        return self.slot.confirmed

    @confirmed.setter
    def confirmed(self, at: float) -> None:
        self.hand.board.confirm(self.slot, at)


class Renewals:
    """Renews what the boards name, and passes on what the storage says of it."""

    def __init__(self, host: Host, worker: str, lease: float, hands: Callable[[], Sequence[Hand]]) -> None:
        self._host = host
        self._worker = worker
        self.seconds = lease
        self._hands = hands
        #: When the storage last answered (monotonic).
        self.confirmed = time.monotonic()
        #: Grows with every renewal that was heard.
        self.rounds = 0

    async def step(self) -> float | None:
        """Renew every claim of every child, by name."""
        self.fence(time.monotonic())
        named = self.late(math.inf)
        for at in range(0, len(named), MAX_BATCH):
            chunk = named[at : at + MAX_BATCH]
            asked = time.monotonic()
            ms = round(self.seconds * 1000)
            answers = await self._host.storage.renew(self._worker, [each.held for each in chunk], ms)
            self.confirmed = asked
            self.rounds += 1
            self.heard(chunk, answers, asked)
        return self.seconds / 3

    def late(self, since: float) -> list[Named]:
        """The claims that were not confirmed since this time, those of one token together. Any thread may ask."""
        named = [Named(hand, slot) for hand in list(self._hands()) if not hand.killed for slot in hand.board.held()]
        named = [n for n in named if n.confirmed < since and n.hand.board.ordered(n.slot) is not Order.LOST]
        return sorted(named, key=lambda each: each.held.token)

    def fence(self, now: float) -> None:
        """A child with a run that was not confirmed within its lease is ended, and reports nothing.

        The job may run elsewhere by now. If other claims of the child are good, only the run is ended.
        """
        for hand in self._hands():
            if hand.killed or hand.stage is Stage.DEAD:
                continue
            stale = hand.board.unconfirmed(now - self.seconds)
            if not stale:
                continue
            keys = {slot.key for slot in stale}
            if all(slot.key in keys for slot in hand.board.held() if slot.phase is Phase.RUNNING):
                hand.fenced = True
                hand.kill(dict.fromkeys(keys, Verdict.LOSS))
                continue
            for slot in stale:
                self._lose(hand, slot)
            hand.say("look")

    def heard(self, leases: Sequence[Named], answers: Sequence[Renewal], asked: float) -> None:
        """What the storage said of these claims, asked at this time."""
        spoken_to: set[Hand] = set()
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
            wanted = {"signal": Order.SIGNAL, "kill": Order.KILL}.get(answer.cancel or "", Order.NONE)
            if wanted > hand.board.ordered(slot):
                hand.board.give(slot, wanted)
                spoken_to.add(hand)
                if wanted is Order.KILL:
                    hand.doom(slot, Verdict.KILL)
        for hand in spoken_to:
            hand.say("look")

    def _lose(self, hand: Hand, slot: Slot) -> None:
        hand.board.give(slot, Order.LOST)
        hand.doom(slot, Verdict.LOSS)
