"""Leases of all children, kept from outside of the processes that run the code."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from penstock.storage.base import MAX_BATCH, Renewal
from penstock.supervisor.board import Order, Phase, Slot, Verdict
from penstock.supervisor.hand import Hand, Stage
from penstock.worker.host import Host

__all__ = ["Renewals"]

Named = tuple[Hand, Slot]


class Renewals:
    """Renews what the boards name, and passes on what the storage says of it."""

    def __init__(self, host: Host, worker: str, lease: float, hands: Callable[[], Sequence[Hand]]) -> None:
        self._host = host
        self._worker = worker
        self._lease = lease
        self._hands = hands
        #: When the storage last answered (monotonic).
        self.confirmed = time.monotonic()

    async def step(self) -> float | None:
        """Renew every claim of every child, by name."""
        self.fence(time.monotonic())
        named = [(hand, slot) for hand in self._hands() if not hand.killed for slot in hand.board.held()]
        named = [(hand, slot) for hand, slot in named if hand.board.ordered(slot) is not Order.LOST]
        named.sort(key=lambda each: each[1].held.token)  # claims of one token are renewed together
        for at in range(0, len(named), MAX_BATCH):
            chunk = named[at : at + MAX_BATCH]
            asked = time.monotonic()
            ms = round(self._lease * 1000)
            answers = await self._host.storage.renew(self._worker, [slot.held for _, slot in chunk], ms)
            self.confirmed = asked
            self._heard(chunk, answers, asked)
        return self._lease / 3

    def fence(self, now: float) -> None:
        """A child with a run that was not confirmed within its lease is ended, and reports nothing.

        The job may run elsewhere by now. If other claims of the child are good, only the run is ended.
        """
        for hand in self._hands():
            if hand.killed or hand.stage is Stage.DEAD:
                continue
            stale = hand.board.unconfirmed(now - self._lease)
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

    def _heard(self, named: Sequence[Named], answers: Sequence[Renewal], asked: float) -> None:
        spoken_to: set[Hand] = set()
        for (hand, slot), answer in zip(named, answers, strict=True):
            if hand.stage is Stage.DEAD:
                continue
            if not answer.kept:
                # After the end it may be lost because it is recorded: the child knows.
                if slot.phase is not Phase.ENDED:
                    self._lose(hand, slot)
                    spoken_to.add(hand)
                continue
            hand.board.confirm(slot, asked)
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
