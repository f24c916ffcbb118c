"""Bulk actions without `await`."""

from __future__ import annotations

import asyncio

import pytest

from penstock import State
from penstock.sync import Penstock


def test_a_bulk_action_is_previewed_run_and_listed(app: Penstock) -> None:
    """`preview` counts, `run` changes the jobs that are not newer than the preview, from a plain thread."""
    queue = app.queue("q")
    queue.enqueue_many(range(3))
    cancel = app.bulk("cancel", "queue:q state:queued", who="ann")
    assert (cancel.verb, cancel.filter, cancel.who) == ("cancel", "queue:q state:queued", "ann")
    assert cancel.preview().count == 3
    done: list[int] = []
    ended = cancel.run(on_step=lambda action: done.append(action.done))
    assert (ended.state, ended.done, done) == ("done", 3, [3])
    assert queue.counts()[State.CANCELLED] == 3
    assert [action.id for action in app.bulk_actions()] == [ended.id]
    assert app.stop_bulk(ended.id) == app.bulk_actions()[0]
    assert app.stop_bulk("none") is None
    assert app.bulk("delete", "id:none").preview().count == 0
    with pytest.raises(ValueError, match="unknown key"):
        app.bulk("delete", "colour:red")


def test_a_run_is_refused_in_a_thread_with_an_event_loop(app: Penstock) -> None:
    """It could take long, and would block the loop."""

    async def blocking() -> None:
        app.bulk("retry", "queue:q").run()

    with pytest.raises(RuntimeError, match="event loop"):
        asyncio.run(blocking())
