"""Events

Every transition of a job is an event: for listeners in your program, for streams anywhere, for the log.
"""

from __future__ import annotations

import logging

import pytest

from penstock import Event, Penstock, Worker


async def test_listening(app: Penstock) -> None:
    """Listeners get the events that this app causes and its workers settle."""
    received: list[str] = []

    @app.on("*")  # or one name, such as "failed"
    def receive(event: Event) -> None:
        received.append(event.name)

    app.listen("mail", lambda text: "sent")
    await app.queue("mail").enqueue("hello")
    await Worker(app).drain()
    assert received == ["enqueued", "started", "completed"]


async def test_hearing_everybody(app: Penstock) -> None:
    """A stream gives the events of all processes."""
    app.listen("mail", lambda text: "sent")
    async with app.events(["enqueued", "completed"], queue="mail") as stream:
        await app.queue("mail").enqueue("hello", id="h")
        await Worker(app).drain()
        events = [await anext(stream), await anext(stream)]
    assert [(event.name, event.id, event.result) for event in events] == [
        ("enqueued", "h", None),
        ("completed", "h", "sent"),
    ]


async def test_a_bad_listener_harms_nothing(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """A listener that raises is logged; the job of the event is not affected."""

    @app.on("completed")
    def alert(event: Event) -> None:
        raise ConnectionError("the pager is off")

    app.listen("mail", lambda text: "sent")
    await app.queue("mail").enqueue("hello", id="h")
    await Worker(app).drain()
    assert await app.queue("mail").result("h") == "sent"
    assert "the pager is off" in caplog.text


async def test_a_log(app: Penstock, caplog: pytest.LogCaptureFixture) -> None:
    """`log_events` writes a line for each event, without payloads or results."""
    caplog.set_level(logging.INFO, "penstock.events")
    app.listen("mail", lambda text: "sent")
    with app.log_events():
        await app.queue("mail").enqueue("secret", id="h")
        await Worker(app).drain()
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.events"]
    assert [line.split()[:3] for line in lines] == [
        ["enqueued", "queue='mail'", "id='h'"],
        ["started", "queue='mail'", "id='h'"],
        ["completed", "queue='mail'", "id='h'"],
    ]
    assert "secret" not in caplog.text
