"""Statistics without `await`: what a queue does and did, and jobs that failed alike."""

from __future__ import annotations

from penstock import PermanentError, State
from penstock.sync import Penstock


def test_statistics_and_failures_are_those_of_the_async_queue(app: Penstock) -> None:
    """`stats`, `history`, `failures`, `failed_jobs` and `retry_failures` work from a plain thread."""
    queue = app.queue("q")
    for id in ("a", "b"):
        queue.enqueue(id, id=id)
    for job in queue.reserve(limit=2):
        job.fail(PermanentError("no"))
    info = queue.stats()
    assert (info.name, info.counts[State.FAILED], info.totals.failed) == ("q", 2, 2)
    [group] = queue.failures()
    assert (group.type, group.open) == ("PermanentError", 2)
    assert {job.id for job in queue.failed_jobs(group.key)} == {"a", "b"}
    assert queue.retry_failures(group.key) == 2
    assert queue.history() == app.history(queue="q") == []
    assert app.history("2d") == []
