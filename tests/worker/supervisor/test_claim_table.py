"""The memory that parent and child share, both ends of it in one process."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from penstock.model.job import Claim
from penstock.storage.base import ClaimRef
from penstock.worker.supervisor.claim_table import ClaimTable, ParentCommand, Phase, Verdict


@pytest.fixture
def child() -> Iterator[ClaimTable]:
    board = ClaimTable(slots=8)
    yield board
    board.close()


@pytest.fixture
def parent(child: ClaimTable) -> Iterator[ClaimTable]:
    """The same memory, as the other process has it."""
    board = ClaimTable(os.dup(child._fd), slots=8)
    yield board
    board.close()


def hold(board: ClaimTable, held: ClaimRef, attempt: int, asked: float) -> int:
    claim = Claim(queue=held.queue, id=held.id, token=held.token, payload=b"", attempts=attempt)
    return board.hold([claim], asked)[0]


LONG = ClaimRef("ü" * 256, "\0:{}" * 128, "t" * 16)


def test_a_claim_is_seen_as_it_was_written(child: ClaimTable, parent: ClaimTable) -> None:
    """The longest names come through, with the attempt, the phase and the times."""
    place = hold(child, LONG, 7, 1.5)
    child.begin(place, 12.5, 10.0, 2.5)
    [slot] = parent.held()
    assert (slot.ref, slot.attempt, slot.phase, slot.verdict) == (LONG, 7, Phase.RUNNING, Verdict.NONE)
    assert (slot.deadline, slot.timeout, slot.confirmed) == (12.5, 10.0, 1.5)


def test_a_dropped_claim_is_gone_and_its_place_is_used_again(child: ClaimTable, parent: ClaimTable) -> None:
    """Places that were used come before new ones, so that little memory is touched; a full board has no room."""
    places = [hold(child, ClaimRef("q", f"{n}", "t"), 1, 0.0) for n in range(8)]
    assert (places, child.room) == (list(range(8)), 0)
    child.drop([5, 2])
    assert [slot.ref.id for slot in parent.held()] == ["0", "1", "3", "4", "6", "7"]
    assert (hold(child, ClaimRef("q", "new", "t"), 1, 0.0), child.room) == (2, 1)
    assert (hold(child, ClaimRef("q", "newer", "t"), 1, 0.0), child.room) == (5, 0)


def test_an_order_is_for_one_claim_only(child: ClaimTable, parent: ClaimTable) -> None:
    """What was said of a claim is never taken for something about the next one in its place."""
    place = hold(child, ClaimRef("q", "a", "t"), 1, 0.0)
    [slot] = parent.held()
    parent.give(slot, ParentCommand.KILL)
    assert (child.order(place), parent.ordered(slot)) == (ParentCommand.KILL, ParentCommand.KILL)
    child.drop([place])
    assert hold(child, ClaimRef("q", "b", "u"), 1, 3.0) == place
    assert child.order(place) is ParentCommand.NONE
    parent.confirm(slot, 99.0)
    assert child.confirmed(place) == 3.0


def test_what_presses_is_found(child: ClaimTable, parent: ClaimTable) -> None:
    """Runs past their deadline and condemned ones; not those that ended, nor those that have no deadline."""
    late, endless, ended, doomed = (hold(child, ClaimRef("q", f"{n}", "t"), 1, 0.0) for n in range(4))
    for place, deadline in ((late, 5.0), (endless, None), (ended, 5.0), (doomed, None)):
        child.begin(place, deadline, 1.0, 0.5)
    child.phases[ended] = Phase.ENDED
    child.escalate(doomed, Verdict.KILL)
    assert [(slot.position, slot.verdict) for slot in parent.overdue(6.0)] == [(late, 0), (doomed, Verdict.KILL)]
    assert [slot.position for slot in parent.overdue(5.0)] == [doomed]


def test_what_is_not_confirmed_is_found(child: ClaimTable, parent: ClaimTable) -> None:
    """A run is confirmed by the time at which the storage was asked."""
    first, second = (hold(child, ClaimRef("q", f"{n}", "t"), 1, 1.0) for n in range(2))
    for place in (first, second):
        child.begin(place, None, None, 0.5)
    parent.confirm(parent.held()[0], 2.0)
    assert [slot.position for slot in parent.unconfirmed(1.5)] == [second]
    assert child.confirmed(first) == 2.0
