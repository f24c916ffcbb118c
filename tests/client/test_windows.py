"""`window`, `debounce` and `max_wait`: unique ids, throttles and debounces, as producers use them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import DuplicateJob, Entry, Penstock, PermanentError, State, Update, Worker
from penstock.ops.export import LeftOut, export_jobs, import_jobs
from penstock.storage.base import PutStatus
from penstock.testing import Clock


def now(clock: Clock) -> datetime:
    return datetime.fromtimestamp(clock.time(), UTC)


async def run(app: Penstock) -> None:
    await Worker(app, lease=3600).drain()


async def test_a_window_holds_the_id_of_a_completed_job(app: Penstock, clock: Clock) -> None:
    """Within the window the id is a duplicate whose end is known; after it, and after a failure, it is free."""

    @app.handler("q", max_retries=0)
    async def handle(payload: str) -> None:
        if payload == "bad":
            raise PermanentError("bad")

    queue = app.queue("q")
    end = now(clock) + timedelta(seconds=60)
    assert await queue.enqueue("good", id="r", window=60, result_ttl=0)
    await run(app)
    clock.advance(seconds=30)
    held = await queue.enqueue("good", id="r", window=60, result_ttl=0)
    assert not held
    assert (held.status, held.state, held.until) == (PutStatus.DUPLICATE, State.COMPLETED, end)
    clock.advance(seconds=31)
    assert (await queue.enqueue("bad", id="r", window=60)).status is PutStatus.QUEUED
    await run(app)
    assert (await queue.enqueue("good", id="r", window=60)).status is PutStatus.QUEUED


async def test_a_kept_result_is_returned_within_its_window(app: Penstock) -> None:
    """A completed job that is kept answers with its result."""

    @app.handler("q")
    async def handle(payload: int) -> int:
        return payload + 1

    await app.queue("q").enqueue(1, id="a", window=60)
    await run(app)
    again = await app.queue("q").enqueue(1, id="a", window=60)
    assert (again.status, again.result, again.until) == (PutStatus.COMPLETED, 2, None)


async def test_an_enqueue_that_raises_names_the_end_of_the_window(app: Penstock, clock: Clock) -> None:
    """`on_conflict="raise"` raises within the window, and `call` does so whatever it asks for."""

    @app.handler("q", retain="none")
    async def handle(payload: Any) -> None: ...

    queue = app.queue("q")
    await queue.enqueue(1, id="a", window=60)
    await run(app)
    match = f"is taken until {now(clock) + timedelta(seconds=60):%Y-%m-%d %H:%M:%S} UTC"
    with pytest.raises(DuplicateJob, match=match):
        await queue.enqueue(1, id="a", window=60, on_conflict="raise")
    with pytest.raises(DuplicateJob, match=match):
        await queue.call(1, id="a", window=60)


async def test_a_throttle_runs_the_first_and_the_last_of_a_window(app: Penstock, clock: Clock) -> None:
    """With `on_conflict="update"` the first job runs at once, and one more at the end of each window."""
    seen: list[tuple[int, int]] = []
    start = clock.time()

    @app.handler("q", retain="none")
    async def handle(payload: int) -> None:
        seen.append((payload, round(clock.time() - start)))

    for second in range(25):
        await app.queue("q").enqueue(second, id="a", window=10, on_conflict="update")
        await run(app)
        clock.advance(seconds=1)
    assert seen == [(0, 0), (10, 10), (20, 20)]


async def test_a_debounced_job_runs_when_it_was_not_enqueued_for_a_time(app: Penstock, clock: Clock) -> None:
    """Puts at 0, 4, 8 and 11 s with debounce=5 and max_wait=12 run once, at 12 s, with the last payload.

    A put during the run makes one more, five seconds later.
    """
    seen: list[tuple[str, int]] = []
    start = clock.time()
    queue = app.queue("q")

    async def touch(payload: str) -> None:
        await queue.enqueue(payload, id="d", debounce=5, max_wait=12)

    @app.handler("q")
    async def handle(payload: str) -> None:
        seen.append((payload, round(clock.time() - start)))
        if payload == "d":
            await touch("during")

    puts = {0: "a", 4: "b", 8: "c", 11: "d"}
    for second in range(20):
        if second in puts:
            await touch(puts[second])
        await run(app)
        clock.advance(seconds=1)
    assert seen == [("d", 12), ("during", 17)]


async def test_a_debounce_without_a_longest_wait_waits_for_silence(app: Penstock, clock: Clock) -> None:
    """Without `max_wait` every put postpones the job."""
    for _ in range(50):
        await app.queue("q").enqueue(1, id="d", debounce=timedelta(seconds=5))
        clock.advance(seconds=4)
    status = await app.queue("q").status("d")
    assert status is not None
    assert status.run_at == now(clock) + timedelta(seconds=1)


async def test_an_update_may_have_a_longest_wait(app: Penstock, clock: Clock) -> None:
    """`Update(max_wait=...)` bounds the time that an enqueue asks for by the job's acceptance."""
    created = now(clock)
    flags = Update(max_wait=timedelta(seconds=30))
    for _ in range(3):
        await app.queue("q").enqueue(1, id="a", delay=20, on_conflict=flags)
        clock.advance(seconds=9)
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.run_at == created + timedelta(seconds=30)


async def test_a_debounce_keeps_the_group_and_the_priority_that_are_not_given(app: Penstock) -> None:
    """A debounced enqueue changes payload and time, and a group or priority only if it gives one."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a", debounce=5, priority=3)
    await queue.enqueue(2, id="a", debounce=5)
    status = await queue.status("a")
    assert status is not None
    assert (status.payload, status.priority) == (2, 3)


async def test_a_cost_is_shown_by_status(app: Penstock) -> None:
    """The cost of an enqueue, and 1 without one."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a", cost=12)
    await queue.enqueue_many([Entry(1, id="b", cost=3), Entry(1, id="c")])
    found = [await queue.status(id) for id in "abc"]
    assert [each and each.cost for each in found] == [12, 3, 1]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"cost": 0}, ValueError, "cost must be at least 1"),
        ({"cost": 1.5}, TypeError, "cost must be an int"),
        ({"cost": 10**9 + 1}, ValueError, "cost must be at most"),
        ({"window": 5}, ValueError, "window needs an id"),
        ({"window": 0, "id": "a"}, ValueError, "window must be more than 0"),
        ({"window": "5", "id": "a"}, TypeError, "window must be seconds"),
        ({"debounce": 5}, ValueError, "debounce needs an id"),
        ({"debounce": 0, "id": "a"}, ValueError, "debounce must be more than 0"),
        ({"debounce": 5, "id": "a", "delay": 5}, ValueError, "give debounce or delay"),
        ({"debounce": 5, "id": "a", "run_at": 2_000_000_000}, ValueError, "give debounce or run_at"),
        ({"debounce": 5, "id": "a", "on_conflict": "update"}, ValueError, "give debounce or on_conflict"),
        ({"debounce": 5, "id": "a", "max_wait": 4}, ValueError, "max_wait must not be less than debounce"),
        ({"debounce": 5, "id": "a", "max_wait": "x"}, TypeError, "max_wait must be seconds"),
        ({"max_wait": 5, "id": "a"}, ValueError, "max_wait needs debounce"),
        ({"debounce": 5, "id": "a", "expires": 4}, ValueError, "expires must be later than debounce"),
    ],
)
@pytest.mark.only("memory")
async def test_a_wrong_option_is_an_error_that_names_it(
    app: Penstock, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    """Nothing is stored."""
    with pytest.raises(error, match=match):
        await app.queue("q").enqueue(1, **options)
    assert await app.queues() == []


@pytest.mark.only("memory")
def test_a_wrong_longest_wait_of_an_update_is_an_error(app: Penstock) -> None:
    """`Update` checks its argument at once."""
    with pytest.raises(ValueError, match="max_wait"):
        Update(max_wait=-1)


async def test_an_exported_job_keeps_its_cost_and_its_window(app: Penstock, clock: Clock) -> None:
    """Imported into another queue, the id is taken until the same time, and the cost is the same."""

    @app.handler("q", retain="none")
    async def handle(payload: Any) -> None: ...

    @app.handler("other", retain="none")
    async def handle_other(payload: Any) -> None: ...

    end = now(clock) + timedelta(seconds=60)
    await app.queue("q").enqueue(1, id="a", window=60, cost=7)
    lines = [line async for line in export_jobs(app, ["q"], LeftOut())]
    clock.advance(seconds=20)
    async for _ in import_jobs(app, lines, "other"):
        pass
    status = await app.queue("other").status("a")
    assert status is not None
    assert status.cost == 7
    await run(app)
    assert (await app.queue("other").enqueue(1, id="a", window=60)).until == end


@pytest.mark.parametrize("preset", ["queasy", "worqr"])
@pytest.mark.only("memory")
async def test_a_debounce_wins_over_the_preset(preset: str, clock: Clock) -> None:
    """Presets that update or raise leave a debounced enqueue alone."""
    async with Penstock("memory:", preset=preset, clock=clock) as app:
        await app.queue("q").enqueue(1, id="a", debounce=5)
        assert (await app.queue("q").enqueue(2, id="a", debounce=5)).status is PutStatus.UPDATED
