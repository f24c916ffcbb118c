"""Listeners get the events they subscribed to, and their exceptions have no other effect."""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, datetime

import pytest

from penstock.model.events import EVENTS, LEVELS, Event, Listeners

NOW = datetime(2030, 1, 1, tzinfo=UTC)


def event(name: str = "completed") -> Event:
    return Event(name=name, at=NOW, queue="q", id="a")


def test_a_listener_receives_its_event_and_no_other() -> None:
    """Listeners are chosen by name; "*" gets every event."""
    listeners, received, everything = Listeners(), list[Event](), list[Event]()
    listeners.add("completed", received.append)
    listeners.add("*", everything.append)
    listeners.emit(event("completed"))
    listeners.emit(event("failed"))
    assert [e.name for e in received] == ["completed"]
    assert [e.name for e in everything] == ["completed", "failed"]


def test_events_without_a_listener_are_not_built() -> None:
    """wants() is False without listeners, so the hot path stays free."""
    listeners = Listeners()
    assert not listeners
    assert not listeners.wants("started")
    listeners.add("started", lambda event: None)
    assert listeners
    assert listeners.wants("started")
    assert not listeners.wants("failed")


async def test_an_async_listener_goes_on_in_the_background() -> None:
    """emit() does not wait for async listeners; wait_finished() does."""
    listeners, received, gate = Listeners(), list[str](), asyncio.Event()

    async def listen(event: Event) -> None:
        await gate.wait()
        received.append(event.name)

    listeners.add("completed", listen)
    listeners.emit(event())
    assert received == []
    gate.set()
    await listeners.wait_finished()
    assert received == ["completed"]


@pytest.mark.parametrize("error", [RuntimeError, asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit])
async def test_a_raising_listener_is_logged_and_harms_nothing(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """The listeners after a broken one are called all the same, whatever it raises."""
    listeners, received = Listeners(), list[str]()

    def broken(event: Event) -> None:
        raise error("plain")

    async def broken_later(event: Event) -> None:
        raise error("async")

    listeners.add("completed", broken)
    listeners.add("completed", broken_later)
    listeners.add("completed", lambda event: received.append(event.id))
    with caplog.at_level(logging.ERROR, "penstock"):
        listeners.emit(event())
        await listeners.wait_finished()
    assert received == ["a"]
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["plain", "async"]


def test_unknown_events_are_refused() -> None:
    """A name that is no event is refused with the list of known ones."""
    with pytest.raises(ValueError, match="completed"):
        Listeners().add("complete", print)
    with pytest.raises(TypeError, match="callable"):
        Listeners().add("completed", 5)  # type: ignore[arg-type]


def test_a_listener_may_leave() -> None:
    """A removed listener gets no more events, the others do, and without the last one no event is wanted."""
    listeners, one, other = Listeners(), list[Event](), list[Event]()
    listeners.add("completed", one.append)
    listeners.add("completed", other.append)
    listeners.remove("completed", one.append)
    listeners.remove("failed", one.append)
    listeners.emit(event())
    assert (len(one), len(other)) == (0, 1)
    listeners.remove("completed", other.append)
    assert not listeners
    assert not listeners.wants("completed")


def test_every_event_has_a_level() -> None:
    """Every event has a default log level."""
    assert set(LEVELS) == set(EVENTS)
