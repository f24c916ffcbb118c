"""`max_queued` without `await`: the same refusals, from every thread."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import QueueFull
from penstock.sync import Penstock
from tests.support import tally


def test_a_full_queue_refuses_every_way_to_enqueue(app: Penstock) -> None:
    """`enqueue`, `enqueue_many` and `call` raise `QueueFull`, and store nothing."""
    queue = app.queue("q", max_queued=2)
    queue.enqueue(1)
    queue.enqueue(2, id="two")
    for call in (lambda: queue.enqueue(3), lambda: queue.enqueue_many([3]), lambda: queue.call(3, timeout=5)):
        with pytest.raises(QueueFull, match="queue 'q' is full, 2 waiting"):
            call()
    assert queue.enqueue(2, id="two").status == "duplicate"
    assert queue.counts() == tally(queued=2)
    queue.delete()


def test_threads_are_accepted_up_to_the_bound(app: Penstock) -> None:
    """Of 40 enqueues by 4 threads, 10 are accepted."""

    @app.task(queue="q", max_queued=10)
    def task(number: int) -> None: ...

    def enqueue(number: int) -> bool:
        try:
            return bool(task.enqueue(number))
        except QueueFull:
            return False

    with app, ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(enqueue, range(40))) == 10
        assert app.queue("q").counts() == tally(queued=10)
        app.queue("q").delete()
