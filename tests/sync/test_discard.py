"""`expires`, `discard` and `clear` without `await`."""

from __future__ import annotations

from penstock import State
from penstock.sync import Penstock
from penstock.testing import Clock


def test_a_job_expires() -> None:
    """A job that has not begun in time is cancelled, and plain ones put before and after that are not."""
    clock = Clock()
    with Penstock("memory:", clock=clock) as app:
        queue = app.queue("q")
        queue.enqueue(1)
        queue.enqueue(2, id="a", expires=60)
        queue.enqueue(3)
        clock.advance(seconds=60)
        queue.enqueue(4)
        status = queue.status("a")
        assert status is not None
        assert status.error is not None
        assert (status.state, status.error.type) == (State.CANCELLED, "Expired")
        assert queue.counts()[State.QUEUED] == 3


def test_discard_and_clear(app: Penstock) -> None:
    """Both delete jobs for good."""
    queue = app.queue("q")
    queue.enqueue_many([1, 2, 3])
    first = queue.peek()
    assert first is not None
    assert [each.status for each in queue.discard([first.id, "unknown"])] == ["discarded", "not_found"]
    assert queue.clear() == 0
    assert queue.clear("queued", older_than=0) == 2
    assert not any(queue.counts().values())
