"""Limits without `await`: set, read, reset, pause and resume, from a plain thread."""

from __future__ import annotations

from penstock import EVERY, Limit, Reason
from penstock.sync import Penstock


def test_limits_are_set_obeyed_and_reset(app: Penstock) -> None:
    """`set_limit`, `limit`, `limits`, `reset_limit` and `why` are those of the async queue."""
    queue = app.queue("q")
    app.limit("other", Limit(concurrency=3))
    assert queue.set_limit(Limit(concurrency=1))
    assert queue.set_limit(Limit(rate="1/s"), group=EVERY)
    assert app.set_limit("q", Limit(concurrency=5))
    assert not app.set_limit("q", Limit(concurrency=5))
    for id in ("a", "b"):
        queue.enqueue(id, id=id)
    [held] = queue.reserve(limit=5)
    why = queue.why("b")
    assert why is not None
    assert (why.reason, why.holders) == (Reason.LIMIT_REACHED, ["a"])
    assert [info.scope for info in queue.limits()] == ["family", "queue", "groups"]
    assert queue.limit().running == 1
    held.retry(delay=60, pause="queue")
    why = queue.why("b")
    assert why is not None
    assert why.reason is Reason.PAUSED
    assert queue.resume()
    assert app.reset_limit("q")
    assert queue.reset_limit()
    assert queue.reset_limit(EVERY)
    assert queue.limits() == []
    queue.delete(settings=True)


def test_a_group_is_paused(app: Penstock) -> None:
    """`pause(group)` and `resume(group)` return whether they changed anything."""
    queue = app.queue("q")
    queue.enqueue(1, id="a", group="a")
    assert queue.pause("a", by="ops")
    assert not queue.pause("a", by="ops")
    assert queue.reserve() == []
    assert queue.limit("a").paused_since is not None
    assert queue.resume("a")
    assert not queue.resume("a")
    queue.delete(settings=True)
