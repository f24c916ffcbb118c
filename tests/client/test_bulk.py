"""Filters of jobs, and bulk actions on the jobs that fit."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from penstock import BulkAction, Penstock, State, StorageError, Worker
from penstock.client import bulk
from penstock.client.bulk import run_bulk, start_bulk
from penstock.client.job_filter import FilterError, find_jobs, parse_filter
from penstock.model.activity import SILENT_MS, BulkVerb, os_user
from penstock.storage.auditing import need_auditing
from penstock.testing import Clock
from tests.support import eventually

pytestmark = pytest.mark.one_per_engine


def add_handler(app: Penstock) -> None:
    @app.handler("mail", max_retries=0)
    async def mail(payload: dict[str, Any]) -> None:
        raise (ConnectionError if payload["to"] == "ann" else ValueError)("host 7 not reachable")


async def fail_jobs(app: Penstock, count: int = 5) -> None:
    """Let jobs fail, of which each second is of another cause."""
    if "mail" not in app.handlers:
        add_handler(app)
    for n in range(count):
        to = "ann" if n % 2 == 0 else "bob"
        await app.queue("mail").enqueue({"to": to, "n": n, "lines": [{"sku": f"s{n}"}]}, id=f"j{n}")
    await Worker(app).drain()


async def ids(app: Penstock, text: str) -> list[str]:
    return sorted(job.id for job in (await find_jobs(app, parse_filter(text))).jobs)


async def test_a_filter_finds_jobs_by_all_its_words(app: Penstock) -> None:
    """Every key, prefixes, quotes and free words; all must fit."""
    await fail_jobs(app)
    await app.queue("other").enqueue("plain text", id="x", group="g", headers={"tenant": "a b"})
    await app.add_release("v2")
    for text, expected in {
        "queue:mail state:failed": ["j0", "j1", "j2", "j3", "j4"],
        "type:ConnectionError": ["j0", "j2", "j4"],
        "type:Conn* payload.n:2": ["j2"],
        'payload.to:"bob"': ["j1", "j3"],
        "payload.lines.sku:s4": ["j4"],
        'error:"host 7*" kind:retriable queue:mail id:j3': ["j3"],
        'header.tenant:"a b"': ["x"],
        "group:g plain": ["x"],
        "NOT REACHABLE j1": ["j1"],
        "after:1h": ["j0", "j1", "j2", "j3", "j4", "x"],
        "before:2001-01-01": [],
        "release:v2 state:queued": ["x"],
        "id:x": ["x"],
        "state:running": [],
    }.items():
        assert await ids(app, text) == expected, text


async def test_a_walk_is_bounded_and_goes_on(app: Penstock) -> None:
    """It looks at a bounded number of jobs, returns that number, and its cursor leads to the rest."""
    for queue in ("a", "b"):
        await app.queue(queue).enqueue_many(range(700))
    wanted, seen, cursor, looks = parse_filter("payload.none:1 state:queued"), 0, None, 0
    while True:
        page = await find_jobs(app, wanted, cursor, max_looked=600)
        assert page.looked <= 1000
        seen, cursor, looks = seen + page.looked, page.cursor, looks + 1
        if cursor is None:
            break
    assert (seen, looks >= 2) == (1400, True)
    with pytest.raises(FilterError, match="after"):
        await find_jobs(app, wanted, "nonsense")


async def test_a_bulk_action_is_previewed_and_done(app: Penstock) -> None:
    """It changes what fits and is not newer, counts the rest as skipped, and its end is in the activity."""
    await fail_jobs(app)
    retry = app.bulk("retry", " queue:mail type:ConnectionError", who="ann")
    look = await retry.preview()
    assert (look.verb, look.filter) == ("retry", "queue:mail type:ConnectionError") == (retry.verb, retry.filter)
    assert (look.count, look.exact, [job.id for job in look.samples]) == (3, True, ["j0", "j2", "j4"])
    assert (await app.bulk("retry", "queue:mail state:failed").preview()).count == 5
    assert await app.bulk_actions() == []  # a preview stores nothing
    ended = await retry.run()
    assert (ended.state, ended.total, ended.done, ended.skipped, ended.failed) == ("done", 3, 3, 0, 0)
    assert (await app.queue("mail").counts())[State.QUEUED] == 3
    [entry] = await app.activity()
    assert (entry.who, entry.verb, entry.target) == ("ann", "bulk retry", "queue:mail type:ConnectionError")
    assert (entry.via, entry.outcome) == ("python", "done: 3 done, 0 skipped, 0 failed")
    assert [(action.id, action.state) for action in await app.bulk_actions()] == [(ended.id, "done")]


async def test_a_wrong_verb_or_filter_is_refused_at_once(app: Penstock) -> None:
    """`app.bulk` raises `ValueError`, which names the verbs or the keys, before anything is stored."""
    with pytest.raises(ValueError, match="verb must be one of 'retry', 'cancel', 'run_now', 'delete', not 'explode'"):
        app.bulk("explode", "state:failed")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unknown key 'colour'; known keys: queue"):
        app.bulk("retry", "colour:red")
    with pytest.raises(ValueError, match="delay"):
        await app.bulk("retry", "state:failed").run(delay=-1)
    assert app.bulk("retry", "").who == os_user()
    assert await app.bulk_actions() == []


@pytest.mark.parametrize("verb", ["cancel", "delete", "run_now"])
async def test_the_other_verbs(app: Penstock, verb: BulkVerb) -> None:
    """Waiting jobs are cancelled, deleted or made due; jobs of other states are left."""
    for n in range(3):
        await app.queue("other").enqueue(n, id=str(n), delay=3600 if n else None)
    assert (await app.bulk(verb, "queue:other payload").run()).done == 0
    assert (await app.bulk(verb, "queue:other state:scheduled").run()).done == 2
    counts = {state: count for state, count in (await app.queue("other").counts()).items() if count}
    expected = {
        "cancel": {State.QUEUED: 1, State.CANCELLED: 2}, "delete": {State.QUEUED: 1}, "run_now": {State.QUEUED: 3},
    }  # fmt: skip
    assert counts == expected[verb]


async def test_jobs_newer_than_the_preview_are_left_out(app: Penstock, clock: Clock) -> None:
    """A job that fails after the preview is not retried; without a preview, all that have failed before `run` are."""
    await fail_jobs(app, 1)
    retry = app.bulk("retry", "state:failed")
    await retry.preview()
    clock.advance(1)
    await app.queue("mail").enqueue({"to": "ann"}, id="new")
    await Worker(app).drain()
    assert (await retry.run()).done == 1
    assert (await app.queue("mail").status("new")).state is State.FAILED  # type: ignore[union-attr]
    assert (await app.bulk("retry", "state:failed").run()).done == 1


async def test_an_action_is_undone_before_its_start_and_stopped_between_steps(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process stops it by its id; jobs that are done stay so, and the record has their number."""
    await fail_jobs(app)
    action = await start_bulk(app, "retry", "state:failed", who="ann", delay=60)
    running = asyncio.ensure_future(run_bulk(app, action.id))
    await asyncio.sleep(0)
    await app.stop_bulk(action.id)
    assert (await running).state == "undone"  # type: ignore[union-attr]
    assert (await app.queue("mail").counts())[State.FAILED] == 5
    monkeypatch.setattr(bulk, "STEP", 2)
    steps: list[BulkAction] = []
    stopped: list[asyncio.Task[BulkAction | None]] = []

    def stop(action: BulkAction) -> None:
        steps.append(action)
        stopped.append(asyncio.ensure_future(app.stop_bulk(action.id)))

    step = bulk._step

    async def stopped_before(*args: object) -> object:
        await asyncio.gather(*stopped)
        return await step(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(bulk, "_step", stopped_before)
    ended = await app.bulk("retry", "state:failed").run(on_step=stop)
    assert [each.done for each in steps] == [2]
    assert (ended.state, ended.done in (2, 4)) == ("stopped", True)  # a step that had begun is done
    assert (await app.queue("mail").counts())[State.QUEUED] == ended.done
    assert (await app.stop_bulk(ended.id)).state == "stopped"  # type: ignore[union-attr]
    assert await app.stop_bulk("none") is None


async def test_a_cancelled_run_stops_its_action(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that is cancelled before the first step leaves the action undone, and later stopped with its counts."""
    await fail_jobs(app)
    waiting = asyncio.ensure_future(app.bulk("retry", "state:failed").run(delay=60))
    await eventually(app.bulk_actions)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert [action.state for action in await app.bulk_actions()] == ["undone"]
    running: list[asyncio.Task[BulkAction]] = []
    monkeypatch.setattr(bulk, "STEP", 2)
    running.append(
        asyncio.ensure_future(app.bulk("retry", "state:failed").run(on_step=lambda action: running[0].cancel()))
    )
    with pytest.raises(asyncio.CancelledError):
        await running[0]
    [action] = [action for action in await app.bulk_actions() if action.state != "undone"]
    assert (action.state, action.done) == ("stopped", 2)
    assert (await app.activity())[0].outcome == "stopped: 2 done, 0 skipped, 0 failed"


async def test_an_error_of_the_storage_fails_the_action(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the error, and `run` returns it."""
    await fail_jobs(app)

    async def broken(*args: object, **options: object) -> None:
        raise StorageError("the disk is full")

    monkeypatch.setattr(bulk, "change_jobs", broken)
    ended = await app.bulk("retry", "state:failed").run()
    assert (ended.state, ended.error, ended.done) == ("failed", "the disk is full", 0)


async def test_an_action_of_a_dead_process_is_not_resumed(app: Penstock, clock: Clock) -> None:
    """A record that has not changed for a minute reads as stopped, and a process that runs it then does nothing."""
    await fail_jobs(app)
    action = await start_bulk(app, "retry", "state:failed", who="ann", delay=0)
    assert [each.state for each in await app.bulk_actions()] == ["waiting"]
    clock.advance(SILENT_MS / 1000 + 1)
    assert [each.state for each in await app.bulk_actions()] == ["stopped"]
    ended = await run_bulk(app, action.id)
    assert ended is not None
    assert (ended.state, ended.done) == ("stopped", 0)
    assert (await need_auditing(app.storage).get_bulk(action.id)).state == "stopped"  # type: ignore[union-attr]


def test_name_of_a_user_that_is_no_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bytes of the user's name that are not UTF-8 are escaped: the activity can store it."""
    monkeypatch.setenv("LOGNAME", os.fsdecode(b"ann\xff"))
    assert os_user() == "ann\\udcff"
