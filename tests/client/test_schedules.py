"""Schedules made at run time: their ticks become jobs, once each, and every tick is accounted for."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Cron, Event, Every, Job, Penstock, ScheduleInfo, ScheduleNotFound, State, Worker
from penstock.testing import Clock
from tests.support import Backend, eventually, forget_all

T = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


def minute(number: int) -> str:
    """Return the id of the tick of schedule `q` at this minute after `T`."""
    return f"q@{T + timedelta(minutes=number):%Y-%m-%dT%H:%M:%S}Z"


@pytest.fixture
def clock() -> Clock:
    return Clock(T)


@pytest.fixture
def seen(app: Penstock) -> list[Job]:
    """The jobs that the handler of queue `q` has run."""
    seen: list[Job] = []

    @app.handler("q")
    async def note(payload: Any, job: Job) -> None:
        seen.append(job)

    return seen


async def run(app: Penstock) -> None:
    await Worker(app, lease=3600).drain()


async def take(app: Penstock, count: int = 1) -> list[Any]:
    return await app.queue("q").reserve(limit=count, lease=3600)


async def info(app: Penstock, name: str = "q") -> ScheduleInfo:
    found = await app.queue("q").schedules.get(name)
    assert found is not None
    return found


def ids(seen: list[Job]) -> list[str]:
    return [job.id for job in seen]


async def every_minute(app: Penstock, **options: Any) -> ScheduleInfo:
    options = {"overlap": "allow", **options}
    return await app.queue("q").schedules.put("q", Every(60), **options)


# ticks become jobs -------------------------------------------------------------------------------


async def test_each_tick_is_one_job_with_its_nominal_time(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Every minute, the clock moved by a minute three times: a drain runs one job each time."""
    await every_minute(app, payload={"n": 1})
    for number in (1, 2, 3):
        clock.advance(60)
        await run(app)
        assert ids(seen) == [minute(n) for n in range(1, number + 1)]
    tick = seen[1].tick
    assert tick is not None
    assert (tick.schedule, tick.nominal, tick.previous) == ("q", T + timedelta(minutes=2), T + timedelta(minutes=1))
    assert not tick.manual
    assert seen[1].headers == {}
    found = await info(app)
    assert (found.fired, found.skipped, found.missed, found.dropped) == (3, 0, 0, 0)
    assert found.last_id == minute(3)
    assert found.next_at == T + timedelta(minutes=4)


async def test_the_job_of_a_tick_has_the_cost_of_its_schedule(app: Penstock, clock: Clock) -> None:
    """A schedule with a cost of 5: the jobs of a tick, of a trigger and of a backfill cost 5."""
    await every_minute(app, cost=5)
    schedules = app.queue("q").schedules
    await schedules.trigger("q")
    await schedules.backfill("q", T - timedelta(minutes=1), T)
    clock.advance(60)
    await take(app, 3)
    assert [job.cost for job in await app.queue("q").find()] == [5, 5, 5]


async def test_two_workers_that_drain_at_once_run_each_tick_once(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Both workers see the due tick; the version of the record lets one of them put the job."""
    await every_minute(app)
    for _ in range(3):
        clock.advance(60)
        await asyncio.gather(run(app), run(app))
    assert sorted(ids(seen)) == [minute(1), minute(2), minute(3)]
    assert (await info(app)).fired == 3


async def test_the_jobs_of_ticks_have_the_cost_of_their_schedule(app: Penstock, clock: Clock) -> None:
    """A schedule with a cost: the job of its tick, and that of a trigger, take as much from rates."""
    await every_minute(app, cost=7)
    await app.queue("q").schedules.trigger("q")
    clock.advance(60)
    await take(app)
    assert [job.cost for job in await app.queue("q").find()] == [7, 7]


async def test_reserve_fires_the_ticks_of_its_queue(app: Penstock, clock: Clock) -> None:
    """A queue that is served by reservations alone gets the jobs of its ticks, in the call that is due."""
    await every_minute(app)
    clock.advance(60)
    [taken] = await take(app)
    assert taken.id == minute(1)
    assert taken.tick is not None
    assert taken.tick.nominal == T + timedelta(minutes=1)
    await taken.complete(None)


async def test_a_late_tick_alone_fires_and_the_older_ones_are_missed(
    app: Penstock, clock: Clock, seen: list[Job]
) -> None:
    """An hour without a worker, `catch_up="latest"`: the last tick fires, 59 are missed."""
    missed: list[Event] = []
    app.on("tick_missed")(missed.append)
    await every_minute(app, catch_up="latest")
    clock.advance(hours=1)
    await run(app)
    assert ids(seen) == [minute(60)]
    assert (await info(app)).missed == 59
    assert [event.id for event in missed] == [minute(n) for n in range(1, 60)]


async def test_catch_up_all_fires_the_newest_late_ticks_in_order(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Ten seconds after the hour with `most=10`: the ten newest late ticks and the fresh one."""
    await every_minute(app, catch_up="all", most=10)
    clock.advance(3610)
    await run(app)
    assert ids(seen) == [minute(n) for n in range(50, 61)]
    assert (await info(app)).missed == 49


async def test_an_unfinished_job_lets_the_next_ticks_be_skipped(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """The first job is held by a reservation: two ticks are skipped, and the one after its end fires."""
    skipped: list[Event] = []
    app.on("tick_skipped")(skipped.append)
    await every_minute(app, overlap="skip")
    clock.advance(60)
    [held] = await take(app)
    for _ in range(2):
        clock.advance(60)
        await run(app)
    assert seen == []
    assert (await info(app)).skipped == 2
    assert [event.id for event in skipped] == [minute(2), minute(3)]
    await held.complete(None)
    clock.advance(60)
    [taken] = await take(app)
    assert taken.id == minute(4)
    await taken.complete(None)


async def test_replace_cancels_the_last_job_and_runs_the_newest(app: Penstock, clock: Clock) -> None:
    """Two ticks while a run waits for its cancellation: it ends, the newest job runs, the one between is cancelled."""
    started: list[str] = []
    ended: list[str] = []
    ticked = asyncio.Event()

    @app.handler("q", timeout=None, result_ttl=3600)
    async def wait(payload: Any, job: Job) -> None:
        started.append(job.id)
        await job.cancelled
        await ticked.wait()
        ended.append(job.id)
        raise RuntimeError("ended by its cancellation")

    queue = app.queue("q")
    await queue.schedules.put("q", Every(60), overlap="replace")
    async with Worker(app, lease=3600) as worker:

        async def tick() -> None:
            clock.advance(60)
            await queue.schedules.edit("q", most=1)  # decides what is due now, as the ticker would a little later

        await tick()
        await eventually(lambda: started == [minute(1)])
        await tick()
        await tick()
        ticked.set()
        await eventually(lambda: started == [minute(1), minute(3)])
        assert ended == [minute(1)]
        states = {number: await queue.status(minute(number)) for number in (1, 2, 3)}
        assert states[1] is not None
        assert states[1].state is State.CANCELLED
        assert states[2] is None or states[2].state is State.CANCELLED
        assert states[3] is not None
        assert states[3].state is State.RUNNING
        await worker.release_all()
        await queue.schedules.remove("q")
        await queue.delete()


async def test_jitter_delays_each_job_by_a_share_of_its_own(app: Penstock, clock: Clock) -> None:
    """Ten ticks with a jitter of 30 s: nominal times on the minute, delays below 30 s, the same on every storage."""
    await every_minute(app, jitter=30, catch_up="all", grace=3600)
    clock.advance(minutes=10)
    await app.queue("q").pause()
    assert await take(app) == []
    found = [await app.queue("q").status(minute(number)) for number in range(1, 11)]
    delays: list[float] = []
    for status in found:
        assert status is not None
        assert status.tick is not None
        assert status.tick.nominal.second == 0
        delays.append((status.run_at - status.tick.nominal).total_seconds())
    assert all(0 <= delay < 30 for delay in delays)
    assert delays == DELAYS


#: The shares of ten ticks: they follow from queue, name and nominal time alone.
DELAYS = [17.556, 26.688, 22.444, 12.722, 17.854, 0.141, 8.757, 2.585, 17.262, 17.05]


# pause, resume, trigger ----------------------------------------------------------------------------


async def test_ticks_in_a_pause_are_not_made_up_for(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Paused for ten minutes and resumed: the next tick is the eleventh; a trigger works meanwhile."""
    schedules = app.queue("q").schedules
    await every_minute(app)
    assert await schedules.pause("q", note="storm")
    assert not await schedules.pause("q", note="storm")
    assert ((await info(app)).paused_since, (await info(app)).note) == (T, "storm")
    assert (await info(app)).next_at is None
    clock.advance(minutes=10)
    await run(app)
    assert seen == []
    triggered = await schedules.trigger("q")
    assert triggered
    assert triggered.id == "q@2030-01-01T00:10:00.000Z!"
    await run(app)
    assert [job.id for job in seen] == [triggered.id]
    tick = seen[0].tick
    assert tick is not None
    assert tick.manual
    assert await schedules.resume("q")
    assert not await schedules.resume("q")
    await run(app)
    clock.advance(60)
    await run(app)
    assert ids(seen)[1:] == [minute(11)]
    assert (await info(app)).fired == 1


async def test_resume_with_catch_up_treats_the_pause_as_late(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Resumed with `catch_up`: the last tick of the pause fires too, the others are missed."""
    await every_minute(app)
    await app.queue("q").schedules.pause("q")
    clock.advance(minutes=10)
    await app.queue("q").schedules.resume("q", catch_up=True)
    await run(app)
    clock.advance(60)
    await run(app)
    assert ids(seen) == [minute(10), minute(11)]
    assert (await info(app)).missed == 9


async def test_a_trigger_obeys_the_overlap_by_default(app: Penstock, clock: Clock) -> None:
    """With an unfinished job a trigger is falsy and names it; `overlap="allow"` puts a job, with another payload."""
    await every_minute(app, overlap="skip", payload="plain")
    schedules = app.queue("q").schedules
    first = await schedules.trigger("q")
    again = await schedules.trigger("q")
    assert first
    assert not again
    assert (again.id, again.state) == (first.id, State.QUEUED)
    other = await schedules.trigger("q", payload="other", overlap="allow")
    assert other
    assert other.id != first.id
    status = await app.queue("q").status(other.id)
    assert status is not None
    assert status.payload == "other"
    assert (await info(app)).fired == 0


async def test_at_once_puts_a_job_with_the_schedule(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """`at_once=True`: the creation puts a manual tick; a replacement does not."""
    await every_minute(app, at_once=True)
    await every_minute(app, at_once=True)
    await run(app)
    assert ids(seen) == ["q@2030-01-01T00:00:00.000Z!"]


async def test_backfill_puts_the_ticks_of_a_range_once(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Ticks after the start up to the end, in order; those with a job are left out, and so is the future."""
    await every_minute(app)
    clock.advance(60)
    await run(app)
    schedules = app.queue("q").schedules
    start = T - timedelta(minutes=2)
    assert await schedules.backfill("q", start, T + timedelta(minutes=1)) == 2
    assert await schedules.backfill("q", start, T + timedelta(minutes=1)) == 0
    await run(app)
    assert ids(seen) == [minute(1), minute(-1), minute(0)]
    with pytest.raises(ValueError, match="end"):
        await schedules.backfill("q", T, T + HOUR)
    with pytest.raises(ValueError, match="start"):
        await schedules.backfill("q", T, T - HOUR)
    with pytest.raises(ValueError, match="10000"):
        await schedules.backfill("q", T - timedelta(days=10), T)


# changes -------------------------------------------------------------------------------------------


async def test_ticks_that_are_due_before_an_edit_belong_to_the_old_times(
    app: Penstock, clock: Clock, seen: list[Job]
) -> None:
    """Edited from every minute to every hour with a tick due: that tick fires, and the next is the hour."""
    await every_minute(app)
    clock.advance(70)
    edited = await app.queue("q").schedules.edit("q", when=Every(hours=1))
    assert edited.next_at == T + HOUR
    assert edited.fired == 1
    await run(app)
    assert ids(seen) == [minute(1)]


async def test_the_jobs_have_the_options_of_the_schedule(app: Penstock, clock: Clock) -> None:
    """Group, cost, headers and bounds of the schedule are those of its jobs; the tick is not among the headers."""
    await every_minute(app, group="g", cost=7, headers={"k": "v"}, result_ttl=5)
    clock.advance(60)
    [taken] = await take(app)
    status = await app.queue("q").status(taken.id)
    assert status is not None
    assert (status.group, status.cost, status.headers) == ("g", 7, {"k": "v"})
    assert status.tick is not None
    await taken.complete(None)


async def test_an_edit_changes_what_it_names_and_nothing_else(app: Penstock, clock: Clock) -> None:
    """Payload, jitter and bounds are changed one by one; the next tick stays."""
    schedules = app.queue("q").schedules
    before = await every_minute(app, payload=1, timeout=5, max_retries=2)
    await schedules.edit("q", payload=2, timeout=None)
    after = await schedules.edit("q", jitter=3)
    assert (after.payload, after.jitter, after.next_at) == (2, 3.0, before.next_at)
    clock.advance(60)
    assert await take(app) == []
    clock.advance(3)
    [taken] = await take(app)
    assert taken.payload == 2
    await taken.complete(None)


async def test_a_removed_schedule_leaves_its_jobs_and_a_new_one_has_a_new_cursor(
    app: Penstock, clock: Clock, seen: list[Job]
) -> None:
    """Removed with a tick due and made again: that tick never fires, jobs that were put stay."""
    await every_minute(app)
    clock.advance(60)
    schedules = app.queue("q").schedules
    await schedules.trigger("q")
    assert await schedules.remove("q")
    assert not await schedules.remove("q")
    await every_minute(app)
    await run(app)
    assert ids(seen) == ["q@2030-01-01T00:01:00.000Z!"]


async def test_deleting_a_queue_leaves_its_schedules_by_default(app: Penstock, clock: Clock) -> None:
    """`delete()` keeps them, `delete(settings=True)` takes them."""
    await every_minute(app)
    await app.queue("q").delete()
    assert [each.name for each in await app.schedules()] == ["q"]
    await app.queue("q").delete(settings=True)
    assert await app.schedules() == []


async def test_nothing_is_repeated_when_the_clock_is_set_back(backend: Backend, runner: Any) -> None:
    """Two hours back after a tick, and forward again: no tick twice, the next one when its time comes again."""

    class Own:
        now = T.timestamp()

        def time(self) -> float:
            return self.now

    own = Own()
    app = Penstock(storage=backend.build(own), clock=own)  # type: ignore[arg-type]
    seen: list[str] = []

    @app.handler("q")
    async def note(payload: Any, job: Job) -> None:
        seen.append(job.id)

    async with app:
        await every_minute(app)
        for move in (60, -7200, 3600, 3600, 60):
            own.now += move
            await run(app)
        assert seen == [minute(1), minute(2)]
        await forget_all(app.storage)


# lists and mistakes --------------------------------------------------------------------------------


async def test_schedules_are_listed_by_name_in_pages(app: Penstock) -> None:
    """Three schedules in pages of two, and those of all queues together."""
    schedules = app.queue("q").schedules
    for name in ("c", "a", "b"):
        await schedules.put(name, Cron("@daily"))
    await app.queue("other").schedules.put("a", Cron("@hourly", tz="Europe/Paris"))
    first = await schedules.list(limit=2)
    assert [each.name for each in first] == ["a", "b"]
    assert first.cursor is not None
    rest = await schedules.list(first.cursor, limit=2)
    assert [each.name for each in rest] == ["c"]
    assert rest.cursor is None
    assert [(each.queue, each.name) for each in await app.schedules()] == [
        ("other", "a"),
        ("q", "a"),
        ("q", "b"),
        ("q", "c"),
    ]
    assert await schedules.next("a", 2) == [T + timedelta(days=1), T + timedelta(days=2)]


@pytest.mark.parametrize(
    ("expression", "start", "expected"),
    [
        ("30 2 * * *", "2026-03-28 12:00", ["03-29 01:00", "03-30 00:30", "03-31 00:30"]),
        ("0,15,45 2 * * *", "2026-03-28 12:00", ["03-29 01:00", "03-30 00:00", "03-30 00:15", "03-30 00:45"]),
        ("30 2 * * *", "2026-10-24 12:00", ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("*/30 2 * * *", "2026-03-28 12:00", ["03-30 00:00", "03-30 00:30"]),
        ("*/30 2 * * *", "2026-10-24 12:00", ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"]),
    ],
)
@pytest.mark.only("memory", "sqlite", "redis")
async def test_next_gives_the_ticks_in_a_gap_and_in_a_fold(
    backend: Backend, expression: str, start: str, expected: list[str]
) -> None:
    """A daily time in the gap of Paris is a tick at its end, a repeated one is one tick, and of steps it is two."""
    clock = Clock(datetime.fromisoformat(f"{start}+00:00").timestamp())
    async with Penstock(storage=backend.build(clock), clock=clock) as app:  # type: ignore[arg-type]
        schedules = app.queue("q").schedules
        await schedules.put("q", Cron(expression, tz="Europe/Paris"))
        assert [f"{each:%m-%d %H:%M}" for each in await schedules.next("q", len(expected))] == expected
        await forget_all(app.storage)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"when": "0 0 * * *"}, "when"),
        ({"jitter": -1}, "jitter"),
        ({"grace": "x"}, "grace"),
        ({"overlap": "maybe"}, "overlap"),
        ({"catch_up": "some"}, "catch_up"),
        ({"most": 0}, "most"),
        ({"most": 1001}, "most"),
        ({"start": T + HOUR, "end": T}, "end"),
        ({"start": datetime(2030, 1, 1)}, "start"),
        ({"priority": 1, "group": "g"}, "priority"),
        ({"priority": 1, "overlap": "queue"}, "priority"),
        ({"headers": {"penstock.x": "1"}}, "headers"),
        ({"payload": lambda tick: 1}, "payload"),
        ({"payload": 1, "kwargs": {"a": 1}}, "payload"),
        ({"timeout": 0}, "timeout"),
        ({"max_attempts": 0}, "max_attempts"),
    ],
)
@pytest.mark.only("sqlite")
async def test_a_wrong_option_is_refused_by_name_and_nothing_is_stored(
    app: Penstock, options: dict[str, Any], named: str
) -> None:
    """A bad option of `put`: the error names it, and there is no schedule."""
    when = options.pop("when", Every(60))
    with pytest.raises((TypeError, ValueError), match=named):
        await app.queue("q").schedules.put("q", when, **options)
    assert await app.schedules() == []


@pytest.mark.only("sqlite")
async def test_a_name_has_at_most_480_bytes(app: Penstock) -> None:
    """The id of a tick is the name and a time, so a longer name is refused."""
    await app.queue("q").schedules.put("é" * 240, Every(60))
    with pytest.raises(ValueError, match="name"):
        await app.queue("q").schedules.put("é" * 240 + "x", Every(60))


@pytest.mark.only("sqlite")
async def test_calls_about_a_schedule_that_is_not_there(app: Penstock) -> None:
    """`get` returns None and `remove` False; calls that need it raise `ScheduleNotFound`."""
    schedules = app.queue("q").schedules
    assert await schedules.get("x") is None
    assert not await schedules.remove("x")
    for call in (
        schedules.edit("x", jitter=1),
        schedules.pause("x"),
        schedules.resume("x"),
        schedules.reset("x"),
        schedules.trigger("x"),
        schedules.next("x"),
        schedules.backfill("x", T - HOUR, T),
    ):
        with pytest.raises(ScheduleNotFound, match="'x'"):
            await call


@pytest.mark.only("sqlite")
async def test_edit_refuses_what_does_not_fit_together(app: Penstock) -> None:
    """No option, `at_once`, an end before the start, a priority in a group: refused, and nothing is changed."""
    schedules = app.queue("q").schedules
    before = await every_minute(app, start=T, group="g")
    wrong: list[dict[str, Any]] = [{}, {"at_once": True}, {"end": T - HOUR}, {"priority": 3}, {"nonsense": 1}]
    for changes in wrong:
        with pytest.raises((TypeError, ValueError)):
            await schedules.edit("q", **changes)
    assert await info(app) == before
    with pytest.raises(ValueError, match="not declared in code"):
        await schedules.reset("q")


@pytest.mark.only("sqlite")
async def test_reserved_headers_are_refused_everywhere(app: Penstock) -> None:
    """A header that begins with `penstock.` is a `ValueError` of an enqueue."""
    with pytest.raises(ValueError, match="headers"):
        await app.queue("q").enqueue(1, headers={"penstock.schedule": "x"})


async def test_a_schedule_is_forgotten_a_week_after_its_end(app: Penstock, clock: Clock, seen: list[Job]) -> None:
    """Made at run time with an end: its last tick fires, it is listed for 7 days, then it is gone."""
    await every_minute(app, end=T + timedelta(minutes=2), catch_up="all")
    clock.advance(minutes=5)
    await run(app)
    assert ids(seen) == [minute(1), minute(2)]
    assert (await info(app)).next_at is None
    clock.advance(days=6)
    assert len(await app.schedules()) == 1
    clock.advance(days=1)
    assert await app.schedules() == []
