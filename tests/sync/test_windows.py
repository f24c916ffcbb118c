"""`cost`, `window`, `debounce` and `id_by` without `await`."""

from __future__ import annotations

import pytest

from penstock import DuplicateJob
from penstock.storage.base import PutStatus
from penstock.sync import Penstock, Worker
from penstock.testing import Clock


def test_a_window_holds_an_id() -> None:
    """A put within the window of a forgotten job is a duplicate with its end, and a call raises."""
    clock = Clock()
    with Penstock("memory:", clock=clock) as app:

        @app.handler("q", retain="none")
        def handle(payload: int) -> None: ...

        queue = app.queue("q")
        assert queue.enqueue(1, id="a", window=60, cost=4)
        status = queue.status("a")
        assert status is not None
        assert status.cost == 4
        Worker(app).drain()
        held = queue.enqueue(1, id="a", window=60)
        assert held.until is not None
        assert (held.status, held.until.timestamp()) == (PutStatus.DUPLICATE, clock.time() + 60)
        with pytest.raises(DuplicateJob, match="is taken until"):
            queue.call(1, id="a", window=60)
        clock.advance(seconds=60)
        assert queue.enqueue(1, id="a", window=60)


def test_a_task_is_debounced_by_its_arguments() -> None:
    """Calls with equal arguments become one job, and enqueue_many reads their ids too."""
    clock = Clock()
    with Penstock("memory:", clock=clock) as app:
        seen: list[tuple[int, int]] = []

        @app.task(id_by="user")
        def index(user: int, text: int) -> None:
            seen.append((user, text))

        soon = index.options(debounce=5, max_wait=12)
        assert soon.enqueue(1, text=1).id == "user=1"
        assert soon.enqueue(1, text=2).status is PutStatus.UPDATED
        assert [each.id for each in soon.enqueue_many([(1, 3), (2, 4)])] == ["user=1", "user=2"]
        Worker(app).drain()
        assert seen == []
        clock.advance(seconds=5)
        Worker(app).drain()
        assert sorted(seen) == [(1, 3), (2, 4)]
