"""The leases of all children, renewed by the supervisor from outside of the processes that run handlers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from penstock.claims import renew_all
from penstock.host import AppHost
from penstock.model.source import source
from penstock.storage.base import ClaimRef, Renewal
from penstock.worker.run import Interruption
from penstock.worker.supervisor.channel import ToChild
from penstock.worker.supervisor.child_handle import ChildHandle, Stage
from penstock.worker.supervisor.claim_table import ParentCommand, Phase, Slot

__all__ = ["LeaseRenewer"]

#: The command for each cancel mode that a renewal answers.
COMMANDS = {"signal": ParentCommand.SIGNAL, "kill": ParentCommand.KILL}


class ChildClaim:
    """A claim of a child."""

    __slots__ = ("child", "slot")

    def __init__(self, child: ChildHandle, slot: Slot) -> None:
        self.child = child
        self.slot = slot

    @property
    def ref(self) -> ClaimRef:
        """The claim as the storage names it."""
        return self.slot.ref

    @property
    def confirmed(self) -> float:
        """When the storage last confirmed the lease (monotonic)."""
        return self.slot.confirmed

    @confirmed.setter
    def confirmed(self, at: float) -> None:
        self.child.table.confirm(self.slot, at)


class LeaseRenewer:
    """Renews the claims in the tables of all children, and writes the storage's answers back as commands."""

    def __init__(self, host: AppHost, worker: str, lease: float, children: Callable[[], Sequence[ChildHandle]]) -> None:
        self._host = host
        self._worker = worker
        self.seconds = lease
        self._children = children
        #: The number of renewals that the storage has answered.
        self.rounds = 0

    async def step(self) -> float | None:
        """Renew every claim of every child; returns the seconds until the next renewal."""
        self.fence(source.monotonic())
        storage, lease_ms = self._host.storage, round(self.seconds * 1000)
        await renew_all(storage, self._worker, self.late(math.inf), lease_ms, self._answered, source.monotonic)
        return self.seconds / 3

    def _answered(self, claims: Sequence[ChildClaim], answers: Sequence[Renewal], asked: float) -> None:
        self.rounds += 1
        self.renewed(claims, answers, asked)

    def late(self, since: float) -> list[ChildClaim]:
        """Return the claims that were not confirmed since this time, ordered by token. Safe from any thread."""
        claims = [
            ChildClaim(child, slot)
            for child in list(self._children())
            if not child.killed
            for slot in child.table.held()
        ]  # fmt: skip
        late = [
            claim
            for claim in claims
            if claim.confirmed < since and claim.child.table.command_for(claim.slot) is not ParentCommand.LOST
        ]
        return sorted(late, key=lambda claim: claim.ref.token)

    def fence(self, now: float) -> None:
        """Kill each child all of whose runs were not confirmed within their lease; of others, end only those runs.

        The jobs may run elsewhere by now, so no outcome of them is recorded.
        """
        for child in self._children():
            if child.killed or child.stage is Stage.DEAD:
                continue
            stale = child.table.unconfirmed(now - self.seconds)
            if not stale:
                continue
            keys = {slot.key for slot in stale}
            if all(slot.key in keys for slot in child.table.held() if slot.phase is Phase.RUNNING):
                child.fenced = True
                child.kill(dict.fromkeys(keys, Interruption.LOSS))
                continue
            for slot in stale:
                self._lose(child, slot)
            child.send(ToChild.READ_COMMANDS)

    def renewed(self, claims: Sequence[ChildClaim], answers: Sequence[Renewal], asked: float) -> None:
        """Apply the storage's answers to a renewal that was sent at this time."""
        commanded: set[ChildHandle] = set()
        for claim, answer in zip(claims, answers, strict=True):
            child, slot = claim.child, claim.slot
            if child.stage is Stage.DEAD:
                continue
            if not answer.kept:
                # After its run ended, a claim may be gone because the outcome is recorded: the child knows.
                if slot.phase is not Phase.ENDED:
                    self._lose(child, slot)
                    commanded.add(child)
                continue
            claim.confirmed = asked
            command = COMMANDS.get(answer.cancel or "", ParentCommand.NONE)
            if command > child.table.command_for(slot):
                child.table.give(slot, command)
                commanded.add(child)
                if command is ParentCommand.KILL:
                    child.set_deadline(slot, Interruption.KILL)
        for child in commanded:
            child.send(ToChild.READ_COMMANDS)

    def _lose(self, child: ChildHandle, slot: Slot) -> None:
        child.table.give(slot, ParentCommand.LOST)
        child.set_deadline(slot, Interruption.LOSS)
