"""cancel_matching: every job with a payload is cancelled, whatever its id (Worqr's cancelTasks)."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Entry, Event, InvalidPayload, Penstock, State
from tests.support import tally

PAYLOAD = {"to": "a", "n": 1}


async def test_every_instance_is_cancelled(app: Penstock) -> None:
    """Waiting jobs with the payload go, queued, scheduled, grouped or retrying; others stay (WQ-7, WQ-T8)."""
    queue = app.queue("q")
    await queue.enqueue(PAYLOAD, id="retrying", priority=1)
    [taken] = await queue.reserve()
    await taken.retry(delay=60)
    await queue.enqueue_many(
        [
            Entry(PAYLOAD, id="first"),
            Entry({"n": 2}, id="other"),
            Entry(PAYLOAD, id="grouped", group="g"),
            Entry(PAYLOAD, id="later", delay=60),
            Entry({"to": "b", "n": 1}, id="near"),
        ]
    )
    emitted: list[Event] = []
    app.on("cancelled")(emitted.append)
    cancelled = await queue.cancel_matching(PAYLOAD)
    assert sorted(cancelled) == ["first", "grouped", "later", "retrying"]
    assert sorted(event.id for event in emitted) == sorted(cancelled)
    assert await queue.counts() == tally(queued=2, cancelled=4)
    assert await queue.cancel_matching(PAYLOAD) == []


async def test_more_than_a_page(app: Penstock) -> None:
    """Jobs of many pages are found, though they leave while the pages are turned (WQ-D18)."""
    queue = app.queue("q")
    await queue.enqueue_many([n % 3 for n in range(1800)])
    assert len(await queue.cancel_matching(0)) == 600
    assert (await queue.counts())[State.QUEUED] == 1200


@pytest.mark.parametrize(
    ("running", "found", "state"),
    [("refuse", [], "completed"), ("signal", ["a"], "cancelled"), ("kill", ["a"], "cancelled")],
)
async def test_running_jobs_are_cancelled_by_the_given_mode(
    app: Penstock, running: Any, found: list[str], state: str
) -> None:
    """A running job is left alone, or asked to end, by the mode in `running`."""
    queue = app.queue("q")
    await queue.enqueue(PAYLOAD, id="a")
    await queue.enqueue({"n": 2}, id="b")
    first, second = await queue.reserve(limit=2)
    assert await queue.cancel_matching(PAYLOAD, running=running) == found
    ended = await (first.release() if found else first.complete())
    assert ended == state
    assert await second.complete() is State.COMPLETED


async def test_successors_are_matched_by_their_own_payload(app: Penstock) -> None:
    """A matching successor goes and its run goes on; a matching run with another successor is left alone."""
    queue = app.queue("q")
    await queue.enqueue_many([Entry("run", id="a"), Entry("run", id="b")])
    first, second = await queue.reserve(limit=2)
    await queue.enqueue("next", id="a", on_conflict="update")
    await queue.enqueue("run", id="b", on_conflict="update")
    assert await queue.cancel_matching("next") == ["a"]
    await queue.enqueue("next", id="a", on_conflict="update")
    assert await queue.cancel_matching("run") == ["b"]
    assert await queue.cancel_matching("run", running="signal") == ["b"]
    assert (await queue.counts())[State.BLOCKED] == 1
    assert await first.complete() is State.COMPLETED
    assert await second.release() is State.CANCELLED
    [successor] = await queue.reserve()
    assert successor.payload == "next"
    await successor.complete()


async def test_bad_arguments_are_named(app: Penstock) -> None:
    """A payload that cannot be encoded and an unknown mode are refused."""
    with pytest.raises(InvalidPayload, match="payload"):
        await app.queue("q").cancel_matching(object())
    with pytest.raises(ValueError, match="running"):
        await app.queue("q").cancel_matching(1, running="maybe")  # type: ignore[arg-type]
    assert await app.queue("none").cancel_matching(1) == []
