"""The ticker of a worker: ticks are fired on time, once, by full workers too, and faults only delay them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Cron, Event, Every, Job, Penstock, ScheduleInfo, State, Worker, ticking
from penstock.model import cron
from penstock.model.schedule_settings import ScheduleSettings
from penstock.storage import connect_refcounted
from penstock.storage.base import MAX_BYTES
from penstock.storage.scheduling import Firing, ScheduleRecord
from penstock.testing import Clock, FaultyStorage
from penstock.ticking import need_scheduling
from penstock.worker import declared_schedules, ticker
from tests.support import eventually

T = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> Clock:
    return Clock(T)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for due ticks all the time, because the clock of the test moves while workers rest in real time."""
    monkeypatch.setattr(ticker, "LONGEST_REST", 0.01)


def noting(app: Penstock, **options: Any) -> list[str]:
    """Register a handler of queue `q` that notes the ids of its jobs, and return them."""
    seen: list[str] = []

    @app.handler("q", **options)
    async def note(payload: Any, job: Job) -> None:
        seen.append(job.id)

    return seen


async def info(app: Penstock, name: str = "q") -> ScheduleInfo:
    found = await app.queue("q").schedules.get(name)
    assert found is not None
    return found


def minute(number: int) -> str:
    return f"q@{T + number * MINUTE:%Y-%m-%dT%H:%M:%S}Z"


async def test_a_worker_fires_declared_ticks(app: Penstock, clock: Clock, quick: None) -> None:
    """Declared before the first claim; the tick fires when its time has come, and not before."""
    seen = noting(app, schedule=Every(60))
    async with Worker(app):
        await eventually(lambda: app.queue("q").schedules.get("q"))
        clock.advance(59.999)
        await app.queue("q").enqueue(None, id="plain")
        await eventually(lambda: seen == ["plain"])
        clock.advance(milliseconds=1)
        await eventually(lambda: seen == ["plain", minute(1)])


async def test_a_worker_learns_of_a_schedule_by_its_next_claim(app: Penstock, clock: Clock, quick: None) -> None:
    """A schedule made while the worker is idle: an answer to a claim has the time of its next tick."""
    seen = noting(app)
    async with Worker(app):
        await app.queue("q").enqueue(None, id="first")
        await eventually(lambda: seen == ["first"])
        await app.queue("q").schedules.put("q", Every(60))
        await app.queue("q").enqueue(None, id="second")
        await eventually(lambda: "second" in seen)
        clock.advance(60)
        await eventually(lambda: minute(1) in seen)


async def test_a_full_worker_fires_too(app: Penstock, clock: Clock, quick: None) -> None:
    """The only slot is taken: the tick's job is put on time and waits."""
    going = asyncio.Event()

    @app.handler("q", concurrency=1, schedule=Every(60))
    async def hold(payload: Any) -> None:
        await going.wait()

    async with Worker(app, lease=3600) as worker:  # else the clock passes its lease, and it claims again
        await app.queue("q").enqueue(None)
        await eventually(lambda: len(worker.runs) == 1)
        clock.advance(60)

        async def is_put() -> bool:
            status = await app.queue("q").status(minute(1))
            return status is not None and status.state is State.QUEUED

        await eventually(is_put)
        going.set()


async def test_a_worker_that_is_full_from_the_start_looks_by_itself(
    app: Penstock, clock: Clock, quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes no claim that would name the schedule, so it looks now and then."""
    monkeypatch.setattr(ticker, "IDLE_REST", 0.01)
    going = asyncio.Event()

    @app.handler("q", concurrency=1)
    async def hold(payload: Any) -> None:
        await going.wait()

    async with Worker(app, lease=3600) as worker:  # else the clock passes its lease, and it claims again
        await app.queue("q").enqueue(None)
        await eventually(lambda: len(worker.runs) == 1)
        await app.queue("q").schedules.put("q", Every(60))
        clock.advance(60)
        await eventually(lambda: app.queue("q").status(minute(1)))
        going.set()


async def test_a_thousand_idle_schedules_cost_one_call_in_five_seconds(
    app: Penstock, clock: Clock, trouble: FaultyStorage
) -> None:
    """One look answers for all schedules of all queues, and the storage is not asked for its time before each rest."""
    for number in range(1000):
        await app.queue("q").schedules.put(f"s{number}", Cron("@yearly"))
    own = ticker.Ticker(app, "w", ["q", "other"], lambda: ())
    own.notice(0)
    trouble.calls.clear()
    assert {await own.step() for _ in range(60)} == {ticker.LONGEST_REST}
    assert dict(trouble.calls) == {"due": 60, "time": 1}


async def test_the_ticker_rests_until_the_next_tick(app: Penstock, clock: Clock) -> None:
    """It rests for 3 s before a tick in 3 s, and for 5 s before one in a year: another worker may hold the alarm."""
    noting(app)
    asked: tuple[str, ...] = ()
    own = ticker.Ticker(app, "w", ["q"], lambda: asked)
    await app.queue("q").schedules.put("q", Every(3))
    own.notice(round(T.timestamp() * 1000) + 3000)
    assert await own.step() == 3
    await app.queue("q").schedules.edit("q", when=Cron("@yearly"))
    assert await own.step() == ticker.LONGEST_REST
    await app.queue("q").schedules.remove("q")
    assert await own.step() == ticker.IDLE_REST
    assert not own.active


async def test_claims_that_name_far_ticks_replace_looks(app: Penstock, clock: Clock, trouble: FaultyStorage) -> None:
    """While claims ask for all queues and name a tick in an hour no look is made; one is for a queue not asked for."""
    await app.queue("q").schedules.put("q", Every(3600))
    now = round(T.timestamp() * 1000)
    asked: set[str] = {"q", "other"}
    own = ticker.Ticker(app, "w", ["q", "other"], lambda: asked)
    own.notice(now + 3_600_000, now)
    trouble.calls.clear()
    for _ in range(10):
        own.notice(now + 3_600_000, now)
        assert await own.step() == ticker.LONGEST_REST + ticker.MARGIN
    assert not trouble.calls
    asked = {"other"}
    own.notice(now + 3_600_000, now)
    await own.step()
    assert trouble.calls["due"] == 1


async def test_a_near_tick_is_looked_at_although_claims_name_it(
    app: Penstock, clock: Clock, trouble: FaultyStorage
) -> None:
    """The tick is in 6 seconds: a look takes the alarm, and the next one is at the tick."""
    await app.queue("q").schedules.put("q", Every(6))
    now = round(T.timestamp() * 1000)
    own = ticker.Ticker(app, "w", ["q"], lambda: {"q"})
    trouble.calls.clear()
    own.notice(now + 6000, now)
    await own.step()
    assert trouble.calls["due"] == 1
    clock.advance(6)
    own.notice(now + 6000, now + 6000)
    await own.step()
    assert (await info(app)).fired == 1


async def test_a_claim_after_the_clock_was_set_forward_wakes_the_ticker(app: Penstock, clock: Clock) -> None:
    """The next look was an hour away; the clock of the storage is set past it, and the next claim wakes the ticker."""
    await app.queue("q").schedules.put("q", Every(3600))
    now = round(T.timestamp() * 1000)
    own = ticker.Ticker(app, "w", ["q"], lambda: {"q"})
    own.notice(0)
    await own.step()
    assert not own.notice(now + 3_600_000, now)
    clock.advance(3601)
    assert own.notice(now + 3_600_000, now + 3_601_000)
    await own.step()
    assert (await info(app)).fired == 1


async def test_another_worker_fires_when_the_holder_of_the_alarm_is_gone(app: Penstock, clock: Clock) -> None:
    """The first worker holds the alarm and dies before the tick: another one fires it a second late."""
    noting(app)
    await app.queue("q").schedules.put("q", Every(60))
    first, second = (ticker.Ticker(app, name, ["q"], lambda: ()) for name in ("w1", "w2"))
    for each in (first, second):
        each.notice(0)
    assert await first.step() == ticker.LONGEST_REST
    clock.advance(60)
    assert await second.step() == 1
    assert (await info(app)).fired == 0
    clock.advance(1)
    await second.step()
    assert (await info(app)).fired == 1


async def test_each_next_tick_makes_a_worker_look_once(app: Penstock, clock: Clock) -> None:
    """Another worker holds the alarm: many claims name the same tick, and one look follows."""
    await app.queue("q").schedules.put("q", Every(60))
    first, second = (ticker.Ticker(app, name, ["q"], lambda: ()) for name in ("w1", "w2"))
    tick_at = round((T + MINUTE).timestamp() * 1000)
    assert first.notice(tick_at)
    await first.step()
    clock.advance(58)
    looks = 0
    for _ in range(100):
        if second.notice(tick_at):
            await second.step()
            looks += 1
    assert looks == 1
    assert second.notice(tick_at - 500)


async def test_a_lost_answer_of_fire_does_not_repeat_the_tick(
    app: Penstock, clock: Clock, trouble: FaultyStorage
) -> None:
    """The firing is carried out and its answer is lost: the repeat finds nothing due."""
    seen = noting(app)
    await app.queue("q").schedules.put("q", Every(60))
    clock.advance(60)
    trouble.fail("fire", after=True)
    await Worker(app).drain()
    assert seen == [minute(1)]
    assert (await info(app)).fired == 1


async def test_a_storage_that_is_away_at_the_tick_makes_it_late(
    app: Penstock, clock: Clock, trouble: FaultyStorage
) -> None:
    """`due` fails at first: the tick fires when the storage answers again."""
    seen = noting(app)
    await app.queue("q").schedules.put("q", Every(60))
    clock.advance(70)
    trouble.fail("due", times=2)
    await Worker(app).drain()
    assert seen == [minute(1)]


async def test_an_unknown_zone_leaves_the_schedule_to_others_and_warns_once(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The zone is known where the schedule was made, but not on this worker: others go on, one line is logged."""
    seen = noting(app)
    await app.queue("q").schedules.put("far", Cron("* * * * *", tz="Asia/Tokyo"))
    await app.queue("q").schedules.put("q", Every(60))
    real = cron.zone_of

    def zone_of(tz: str) -> Any:
        if tz == "Asia/Tokyo":
            raise ValueError("tz must be the name of a time zone, not 'Asia/Tokyo'")
        return real(tz)

    monkeypatch.setattr(cron, "zone_of", zone_of)
    from penstock.model import schedule

    schedule._value_of.cache_clear()
    with caplog.at_level(logging.WARNING, "penstock.schedules"):
        for _ in range(2):
            clock.advance(60)
            await Worker(app, id="w").drain()
    assert seen == [minute(1), minute(2)]
    assert (await info(app, "far")).when == "* * * * * (Asia/Tokyo)"
    monkeypatch.undo()
    await Worker(app).drain()
    assert seen[2:] == ["far@2030-01-01T00:02:00Z"]


async def test_a_schedule_that_others_fire_is_logged_once(
    app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that cannot fire a schedule warns once, though each tick that another fires changes its version."""
    await app.queue("q").schedules.put("far", Every(60))

    def due_firing(*args: Any) -> Any:
        raise ValueError("tz must be the name of a time zone")

    monkeypatch.setattr(ticking, "due_firing", due_firing)
    storage, firer = need_scheduling(app.storage), ticking.TickFirer(app, "w")
    for _ in range(3):
        clock.advance(60)
        await firer.fire_due(["q"])
        record = await storage.get_schedule("q", "far")
        assert record is not None
        await storage.fire([Firing(queue="q", name="far", version=record.version, manual=True)])
    assert len([each for each in caplog.records if each.name == "penstock.schedules"]) == 1


async def test_a_payload_function_that_raises_delays_its_ticks(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """The tick stays due, an `error` event is emitted, and it fires as soon as the function works."""
    errors: list[Event] = []
    app.on("error")(errors.append)
    broken = True
    seen: list[Any] = []

    def payload(tick: Any) -> int:
        if broken:
            raise RuntimeError("not now")
        return 7

    @app.schedule(Every(60), payload=payload)
    @app.handler("q")
    async def note(value: Any) -> None:
        seen.append(value)

    await Worker(app).drain()
    clock.advance(60)
    await Worker(app).drain()
    assert seen == []
    assert errors[0].error is not None
    assert errors[0].error.message == "not now"
    broken = False
    await Worker(app).drain()
    assert seen == [7]


async def test_a_hundred_and_fifty_schedules_fire_together(app: Penstock, clock: Clock, trouble: FaultyStorage) -> None:
    """More than one call of `due` returns: all of them fire, a hundred in a call."""
    seen = noting(app)
    for number in range(150):
        await app.queue("q").schedules.put(f"s{number}", Every(60))
    clock.advance(60)
    trouble.calls.clear()
    await Worker(app).drain()
    assert len(set(seen)) == 150
    assert trouble.calls["fire"] == 2


# two versions of the code -----------------------------------------------------------------------------


def version(clock: Clock, storage: Any, when: Any = None, **options: Any) -> Penstock:
    """Return an app on a shared storage whose code declares schedule `n` of queue `q` at these times, or none."""
    app = Penstock(storage=storage, clock=clock)

    @app.handler("q")
    async def handler(payload: Any) -> None: ...

    if when is not None:
        app.schedule(when, name="n", **options)(handler)
    return app


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let workers look at their declarations all the time, and retire schedules after this long (seconds)."""
    from penstock.worker import declarations

    monkeypatch.setattr(declarations, "LOOK", 0.01)

    def retire_after(seconds: float) -> None:
        monkeypatch.setattr(declared_schedules, "RETIRE_AFTER", seconds)

    return retire_after


async def test_the_declaration_of_the_last_started_live_worker_holds(
    clock: Clock, look: Callable[[float], None]
) -> None:
    """B starts after A and declares other times: they hold while B lives, and those of A afterwards."""
    storage = connect_refcounted("memory:", clock=clock)
    old, new = Cron("0 2 * * *"), Cron("0 3 * * *")
    a, b = version(clock, storage, old), version(clock, storage, new)
    async with a:
        schedules = a.queue("q").schedules

        async def times(wanted: Cron) -> bool:
            found = await schedules.get("n")
            return found is not None and found.when == wanted

        async with Worker(a, id="a"):
            await eventually(lambda: times(old))
            clock.advance(1)
            async with Worker(b, id="b"):
                await eventually(lambda: times(new))
            await eventually(lambda: times(old))
        await a.queue("q").delete(settings=True)


async def test_ticks_that_are_due_at_the_switch_belong_to_the_old_times(clock: Clock) -> None:
    """A tick by the old times is due when the new code starts: it fires, and the new times hold from then on."""
    storage = connect_refcounted("memory:", clock=clock)
    async with version(clock, storage, Every(60)) as a:
        await Worker(a).drain()
        clock.advance(70)
        b = version(clock, storage, Every(hours=1))
        await Worker(b).drain()
        found = await a.queue("q").schedules.get("n")
        assert found is not None
        assert (found.fired, found.missed) == (1, 0)
        assert found.next_at == T + timedelta(hours=1)


async def test_more_ticks_than_one_step_decides_are_all_decided_at_the_switch(clock: Clock) -> None:
    """700 ticks are due by the old times when the new code starts: all of them fire, none is forgotten."""
    storage = connect_refcounted("memory:", clock=clock)
    async with version(clock, storage, Every(1), catch_up="all", most=1000, overlap="allow") as a:
        await Worker(a).drain()
        clock.advance(700)
        b = version(clock, storage, Every(hours=1))
        await Worker(b).drain()
        found = await a.queue("q").schedules.get("n")
        assert found is not None
        assert (found.fired, found.missed) == (700, 0)


async def test_late_ticks_with_long_payloads_are_put_in_several_steps(app: Penstock, clock: Clock) -> None:
    """A step puts about as many bytes as one call may have, and the rest of the late ticks is due in the next one."""
    payload = "x" * 1_000_000
    await app.queue("q").schedules.put("s", Every(1), payload=payload, catch_up="all", most=20, overlap="allow")
    clock.advance(100)
    storage = need_scheduling(app.storage)
    sizes: list[int] = []
    while (record := await storage.get_schedule("q", "s")) is not None and (record.next or 0) <= clock.time() * 1000:
        settings = ScheduleSettings.decode(record.spec)
        firing, decision = ticking.due_firing(app, record, settings, round(clock.time() * 1000))
        sizes.append(sum(len(tick.job.payload) for tick in firing.ticks))
        assert [tick.at for tick in firing.ticks] == list(decision.fires)
        await storage.fire([firing])
    assert max(sizes) < MAX_BYTES + 2 * len(payload)
    found = await info(app, "s")
    assert (found.fired, found.missed) == (51, 49)


async def test_a_schedule_without_a_live_declarer_is_retired_and_a_rollback_goes_on(
    clock: Clock, look: Callable[[float], None]
) -> None:
    """New code does not declare it: not fired, retired, kept 7 days; the old code goes on at its cursor."""
    look(0.0)
    storage = connect_refcounted("memory:", clock=clock)
    async with version(clock, storage, Every(60), catch_up="all", overlap="allow") as old:
        schedules = old.queue("q").schedules
        await Worker(old).drain()
        clock.advance(60)
        new = version(clock, storage)

        async def is_retired() -> bool:
            found = await schedules.get("n")
            return found is not None and found.retired_since is not None

        async with Worker(new):
            await eventually(is_retired)
        found = await schedules.get("n")
        assert found is not None
        assert (found.next_at, found.fired) == (None, 0)
        clock.advance(days=6)
        await Worker(old).drain()
        found = await schedules.get("n")
        assert found is not None
        assert found.retired_since is None
        assert (found.fired, found.fired + found.missed) == (101, 6 * 24 * 60 + 1)
        clock.advance(60)
        async with Worker(new):
            await eventually(is_retired)
        clock.advance(days=7)
        assert await schedules.get("n") is None


async def test_code_that_does_not_declare_a_schedule_does_not_fire_it(clock: Clock) -> None:
    """A worker of other code leaves the due tick, one that declares it fires it."""
    storage = connect_refcounted("memory:", clock=clock)
    async with version(clock, storage, Every(60)) as a:
        await Worker(a).drain()
        clock.advance(60)
        await Worker(version(clock, storage)).drain()
        found = await a.queue("q").schedules.get("n")
        assert found is not None
        assert found.fired == 0
        await Worker(a).drain()
        found = await a.queue("q").schedules.get("n")
        assert found is not None
        assert found.fired == 1


async def test_a_record_that_cannot_be_read_stops_no_worker(
    app: Penstock, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Newer software wrote the record: it is left as it is, one line is logged, and jobs run."""
    seen = noting(app, schedule=Every(60))
    record = ScheduleRecord(queue="q", name="q", spec=b"from the future", cursor=0, next=0)
    assert await need_scheduling(app.storage).set_schedule(record, 0)
    await app.queue("q").enqueue(None, id="a")
    with caplog.at_level(logging.ERROR, "penstock.schedules"):
        await Worker(app).drain()
    assert seen == ["a"]
    assert [each.getMessage() for each in caplog.records] == [
        "schedule q of queue q cannot be declared: its record cannot be read"
    ]
    assert list(await app.queue("q").schedules.list()) == []


async def test_a_deleted_declaration_comes_back(app: Penstock, clock: Clock, look: Callable[[float], None]) -> None:
    """The queue is deleted with its settings while a worker declares one: it is declared again."""
    noting(app, schedule=Every(60))
    schedules = app.queue("q").schedules
    async with Worker(app):
        await eventually(lambda: schedules.get("q"))
        await app.queue("q").delete(settings=True)
        await eventually(lambda: schedules.get("q"))
