"""The claim table, mapped twice in one process: as the child and as the supervisor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.model.job import Claim
from penstock.storage.base import ClaimRef
from penstock.worker.run import Interruption
from penstock.worker.supervisor.claim_table import ClaimTable, ParentCommand, Phase


@pytest.fixture
def child() -> Iterator[ClaimTable]:
    table = ClaimTable(slots=8)
    yield table
    table.close()


@pytest.fixture
def parent(child: ClaimTable) -> Iterator[ClaimTable]:
    """The same memory, as the other process has it."""
    table = ClaimTable(os.dup(child._fd), slots=8)
    yield table
    table.close()


def hold(table: ClaimTable, held: ClaimRef, attempt: int, asked: float) -> int:
    claim = Claim(queue=held.queue, id=held.id, token=held.token, payload=b"", attempts=attempt)
    return table.hold([claim], asked)[0]


LONG = ClaimRef("ü" * 256, "\0:{}" * 128, "t" * 16)


def test_a_claim_is_seen_as_it_was_written(child: ClaimTable, parent: ClaimTable) -> None:
    """The longest names come through, with the attempt, the phase and the times."""
    index = hold(child, LONG, 7, 1.5)
    child.begin(index, 12.5, 10.0, 2.5)
    [slot] = parent.held()
    assert (slot.ref, slot.attempt, slot.phase, slot.interruption) == (LONG, 7, Phase.RUNNING, None)
    assert (slot.deadline, slot.timeout, slot.confirmed) == (12.5, 10.0, 1.5)


def test_the_slot_of_a_dropped_claim_is_used_again(child: ClaimTable, parent: ClaimTable) -> None:
    """Used slots are taken before new ones, so that little memory is touched; a full table has no room."""
    slots = [hold(child, ClaimRef("q", f"{n}", "t"), 1, 0.0) for n in range(8)]
    assert (slots, child.room) == (list(range(8)), 0)
    child.drop([5, 2])
    assert [slot.ref.id for slot in parent.held()] == ["0", "1", "3", "4", "6", "7"]
    assert (hold(child, ClaimRef("q", "new", "t"), 1, 0.0), child.room) == (2, 1)
    assert (hold(child, ClaimRef("q", "newer", "t"), 1, 0.0), child.room) == (5, 0)


def test_a_command_is_for_one_claim_only(child: ClaimTable, parent: ClaimTable) -> None:
    """A command for a claim never applies to the next claim in the same slot."""
    index = hold(child, ClaimRef("q", "a", "t"), 1, 0.0)
    [slot] = parent.held()
    parent.give(slot, ParentCommand.KILL)
    assert (child.command(index), parent.command_for(slot)) == (ParentCommand.KILL, ParentCommand.KILL)
    child.drop([index])
    assert hold(child, ClaimRef("q", "b", "u"), 1, 3.0) == index
    assert child.command(index) is ParentCommand.NONE
    parent.confirm(slot, 99.0)
    assert child.confirmed(index) == 3.0


def test_overdue_and_escalated_runs_are_found(child: ClaimTable, parent: ClaimTable) -> None:
    """`overdue` returns runs past their deadline and escalated ones, not ended runs nor those without a deadline."""
    late, endless, ended, stuck = (hold(child, ClaimRef("q", f"{n}", "t"), 1, 0.0) for n in range(4))
    for index, deadline in ((late, 5.0), (endless, None), (ended, 5.0), (stuck, None)):
        child.begin(index, deadline, 1.0, 0.5)
    child.phases[ended] = Phase.ENDED
    child.escalate(stuck, Interruption.KILL)
    assert [(slot.position, slot.interruption) for slot in parent.overdue(6.0)] == [
        (late, None),
        (stuck, Interruption.KILL),
    ]
    assert [slot.position for slot in parent.overdue(5.0)] == [stuck]


def test_unconfirmed_runs_are_found(child: ClaimTable, parent: ClaimTable) -> None:
    """`unconfirmed` returns the runs that the storage has not confirmed since a time."""
    first, second = (hold(child, ClaimRef("q", f"{n}", "t"), 1, 1.0) for n in range(2))
    for index in (first, second):
        child.begin(index, None, None, 0.5)
    parent.confirm(parent.held()[0], 2.0)
    assert [slot.position for slot in parent.unconfirmed(1.5)] == [second]
    assert child.confirmed(first) == 2.0
