"""Hooks around enqueues: once for each call, with headers for all of its jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from typing import Any

import pytest

from penstock import DuplicateJob, Entry, Penstock, QueueFull, Sending, State, Worker


def hooked(app: Penstock) -> list[Sending]:
    """Register a hook that adds a header; returns the enqueues it saw."""
    seen: list[Sending] = []

    @app.around("enqueue")
    @contextlib.contextmanager
    def stamp(sending: Sending) -> Generator[None]:
        seen.append(sending)
        sending.headers["tenant"] = "blue"
        assert not sending.answers
        yield

    return seen


async def test_a_hook_adds_headers_to_every_way_of_enqueueing(app: Penstock) -> None:
    """One call has one `Sending` with its entries and answers; a header that the caller gave is not replaced."""
    seen = hooked(app)
    queue = app.queue("q", max_queued=10)

    @app.task(queue="t")
    async def double(n: int) -> int:
        return 2 * n

    await queue.enqueue(1, id="a")
    entry = Entry(2, id="b", headers={"tenant": "red", "more": "x"})
    await queue.enqueue_many([entry, 3])
    await queue.enqueue_many(iter([Entry(4, id="c")]))
    async with Worker(app, queues=["t"]):
        assert await double.call(2) == 4
    await double.options(run_timeout=5, id="d").enqueue(1)
    headers = [status.headers for id in "abc" if (status := await queue.status(id)) is not None]
    assert headers == [{"tenant": "blue"}, {"tenant": "red", "more": "x"}, {"tenant": "blue"}]
    assert entry.headers == {"tenant": "red", "more": "x"}
    assert [(each.queue, len(each.entries), each.waits) for each in seen] == [
        ("q", 1, False), ("q", 2, False), ("q", 1, False), ("t", 1, True), ("t", 1, False),
    ]  # fmt: skip
    assert [[answer.state for answer in each.answers] for each in seen] == [
        [State.QUEUED] * len(each.entries) for each in seen
    ]
    assert seen[0].answers[0].id == "a"


async def test_an_enqueue_inside_of_hooks_is_the_same_enqueue(app: Penstock) -> None:
    """Options, conflicts and errors are those without a hook; answers given before an error are kept."""
    seen = hooked(app)
    queue = app.queue("q", max_queued=3)
    first = await queue.enqueue(1, id="a", delay=60, group="g", max_retries=1)
    assert (first.id, first.state) == ("a", State.SCHEDULED)
    status = await queue.status("a")
    assert status is not None
    assert (status.group, status.payload) == ("g", 1)
    with pytest.raises(DuplicateJob):
        await queue.enqueue(1, id="a", on_conflict="raise")
    with pytest.raises(TypeError, match="unknown option 'colour'; known options"):
        await queue.enqueue(1, colour="red")  # type: ignore[arg-type]
    assert not await queue.enqueue(1, id="a")
    assert await queue.enqueue_many([]) == []
    with pytest.raises(QueueFull) as full:
        await queue.enqueue_many(iter(range(501)))
    assert full.value.enqueued == []
    assert seen[-1].answers == []


async def test_a_hook_that_swallows_an_error_of_the_enqueue_does_not_hide_it(app: Penstock) -> None:
    """The caller gets the error, because there is no answer; what a hook raises stops the enqueue."""
    app.around("enqueue")(lambda sending: contextlib.suppress(DuplicateJob))
    await app.queue("q").enqueue(1, id="a")
    with pytest.raises(DuplicateJob):
        await app.queue("q").enqueue(1, id="a", on_conflict="raise")

    @app.around("enqueue")
    @contextlib.contextmanager
    def refuse(sending: Sending) -> Generator[None]:
        if sending.entries[0].payload == "bad":
            raise PermissionError("not this one")
        yield

    with pytest.raises(PermissionError, match="not this one"):
        await app.queue("q").enqueue("bad", id="b")
    assert await app.queue("q").status("b") is None


async def test_a_hook_may_change_the_options_of_an_entry(app: Penstock) -> None:
    """Each entry is a copy of its own: a hook gives it a group, a delay, or headers for it alone."""

    @app.around("enqueue")
    @contextlib.contextmanager
    def label(sending: Sending) -> Generator[None]:
        for n, entry in enumerate(sending.entries):
            entry.headers = {"n": str(n)}
            entry.group = "g"
        yield

    await app.queue("q").enqueue_many([Entry("x", id="a"), Entry("y", id="b")])
    found: list[Any] = [await app.queue("q").status(id) for id in "ab"]
    assert [(each.headers, each.group) for each in found] == [({"n": "0"}, "g"), ({"n": "1"}, "g")]
