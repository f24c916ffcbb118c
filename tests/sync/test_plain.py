"""A job without options is enqueued with the same answer, checks, events and preset as one with options."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Enqueued, Event, InvalidPayload
from penstock.sync import Penstock


def test_enqueue_without_options_gives_the_same_answer(app: Penstock) -> None:
    """With empty options the answer is the same as without any."""
    queue = app.queue("q")
    plain, other = queue.enqueue({"n": 1}), queue.enqueue({"n": 1}, headers={})
    for answer in (plain, other):
        assert answer == Enqueued(id=answer.id, status=other.status, state=other.state)
        status = queue.status(answer.id)
        assert status is not None
        assert (status.payload, status.priority, status.group, status.headers) == ({"n": 1}, 0, None, {})
    assert plain.id != other.id


@pytest.mark.parametrize("priority", [False, 0.0, "0"])
def test_a_priority_that_is_no_int_is_refused(app: Penstock, priority: Any) -> None:
    """A priority that equals zero but is no int is refused, as any other value that is no int."""
    with pytest.raises(TypeError, match="priority"):
        app.queue("q").enqueue(1, priority=priority)


def test_payloads_are_checked(url: str) -> None:
    """A payload that is too large, or cannot be encoded, is refused before anything is stored."""
    with Penstock(url, namespace="plain", max_payload=10) as app:
        queue = app.queue("q")
        queue.enqueue(1)
        with pytest.raises(InvalidPayload, match="max_payload"):
            queue.enqueue("x" * 100)
        with pytest.raises(InvalidPayload):
            queue.enqueue(object())
        assert queue.delete() == 1


def test_listeners_and_serdes_that_come_later_count(app: Penstock) -> None:
    """A listener that is declared after the first enqueue gets the event of the second."""
    received: list[str] = []
    queue = app.queue("q")
    queue.enqueue(1)

    @app.on("enqueued")
    def receive(event: Event) -> None:  # pyright: ignore[reportUnusedFunction]
        received.append(event.id)

    assert [queue.enqueue(2).id] == received


def test_a_preset_holds_for_a_job_without_options(url: str) -> None:
    """A job without options gets the group that its preset gives to every job."""
    with Penstock(url, namespace="plain-preset", preset="queue_farm") as app:
        queue = app.queue("q")
        for _ in range(2):
            status = queue.status(queue.enqueue(1).id)
            assert status is not None
            assert status.group == "q"
        assert queue.delete() == 2
