"""`holder`: the declaration of the last started live worker holds."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.model.settings import Declarer, holder
from tests.support import share_of

OLD, NEW = Declarer("a", 1), Declarer("b", 2)


def test_a_worker_declares_if_there_is_no_declarer_or_an_earlier_or_absent_one() -> None:
    """Otherwise the record stays; a worker may always write over its own declaration."""
    assert holder(None, OLD, {"a"}) == OLD
    assert holder(OLD, NEW, {"a", "b"}) == NEW
    assert holder(NEW, OLD, {"a", "b"}) == NEW
    assert holder(NEW, OLD, {"a"}) == OLD
    assert holder(Declarer("a", 9), OLD, {"a"}) == OLD


def test_of_two_that_started_at_once_one_holds() -> None:
    """The greater id, whichever of them looks: they do not take turns."""
    a, b = Declarer("a", 1), Declarer("b", 1)
    assert holder(a, b, {"a", "b"}) == holder(b, a, {"a", "b"}) == b


@settings(max_examples=share_of(300))
@given(seed=st.integers(0, 2**32))
def test_any_order_of_starts_deaths_and_looks_ends_with_the_last_started_live_worker(seed: int) -> None:
    """After each of the live workers has looked once more, and it stays so."""
    draw = random.Random(seed)
    record: Declarer | None = None
    live: dict[str, Declarer] = {}
    clock = 0
    for number in range(draw.randint(1, 30)):
        action = draw.choice(["start", "die", "look", "look"])
        clock += draw.randint(0, 2)
        if action == "start":
            worker = Declarer(f"w{draw.random()}-{number}", clock)
            live[worker.worker] = worker
            record = holder(record, worker, live)
        elif live:
            worker = draw.choice(list(live.values()))
            if action == "die":
                del live[worker.worker]
            else:
                record = holder(record, worker, live)
    for _ in range(2):
        for worker in draw.sample(list(live.values()), len(live)):
            record = holder(record, worker, live)
        if live:
            assert record == max(live.values(), key=lambda each: (each.started, each.worker))
