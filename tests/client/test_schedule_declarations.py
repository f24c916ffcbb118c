"""Schedules that code declares: by decorators and options, written by workers, changed and reset at run time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import (
    Cron,
    Encrypted,
    Every,
    InvalidPayload,
    Job,
    NotSupported,
    Penstock,
    Schedule,
    ScheduleInfo,
    Tick,
    Worker,
)
from penstock.storage import connect
from penstock.storage.scheduling import Scheduling
from penstock.testing import Clock

T = datetime(2030, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


class WithoutSchedules:
    """A storage that lacks the verbs of schedules."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage

    def __getattr__(self, name: str) -> Any:
        if name in dir(Scheduling):
            raise AttributeError(name)
        return getattr(self._storage, name)


@pytest.fixture
def clock() -> Clock:
    return Clock(T)


async def run(app: Penstock) -> None:
    await Worker(app, lease=3600).drain()


async def listed(app: Penstock) -> dict[str, ScheduleInfo]:
    return {each.name: each for each in await app.schedules()}


# declaring ---------------------------------------------------------------------------------------


async def test_a_decorator_above_a_task_schedules_it(app: Penstock, clock: Clock) -> None:
    """Declared when a worker starts, with the name of the queue; the task gets its arguments and the job."""
    seen: list[Any] = []

    @app.schedule(Every(60), kwargs={"city": "Paris"})
    @app.task
    async def weather(city: str, job: Job | None = None) -> None:
        seen.append((city, None if job is None or job.tick is None else job.tick.nominal))

    assert await app.schedules() == []
    await run(app)
    found = await listed(app)
    assert found["weather"].source == "code"
    assert found["weather"].payload == {"city": "Paris"}
    clock.advance(60)
    await run(app)
    assert seen == [("Paris", T + MINUTE)]


async def test_a_decorator_may_stand_below(app: Penstock, clock: Clock) -> None:
    """The function is registered after it was scheduled: as a task, and as a handler."""
    seen: list[str] = []

    @app.task
    @app.schedule(Every(60))
    async def first() -> None:
        seen.append("first")

    @app.handler("second")
    @app.schedule(Every(60), name="other")
    async def second(payload: Any) -> None:
        seen.append("second")

    await run(app)
    clock.advance(60)
    await run(app)
    assert sorted(seen) == ["first", "second"]
    assert sorted(await listed(app)) == ["first", "other"]


async def test_options_of_handlers_take_one_schedule_or_several(app: Penstock, clock: Clock) -> None:
    """`schedule=` of handler, listen and task; a `Schedule` has a name and a payload of its own."""
    seen: list[Any] = []

    @app.handler("reports", schedule=[Every(60), Schedule(Every(60), name="full", payload={"full": True})])
    async def report(payload: Any) -> None:
        seen.append(payload)

    async def listening(payload: Any) -> None:
        seen.append(payload)

    app.listen("mail", listening, schedule=Schedule(Every(60), payload="mail"))

    @app.task(schedule=Cron("* * * * *"))
    async def cleanup(days: int = 3) -> None:
        seen.append(days)

    await run(app)
    clock.advance(60)
    await run(app)
    assert sorted(map(str, seen)) == ["3", "None", "mail", "{'full': True}"]


async def test_a_function_computes_the_payload_of_each_tick(app: Penstock, clock: Clock) -> None:
    """It is called with the tick by the worker whose declaration is the record's."""
    seen: list[Any] = []

    def day(tick: Tick) -> dict[str, str]:
        return {"day": f"{tick.local:%F %H:%M}"}

    @app.schedule(Every(60), payload=day)
    @app.handler("q")
    async def note(payload: Any, job: Job) -> None:
        seen.append(payload)

    await run(app)
    clock.advance(60)
    await run(app)
    assert seen == [{"day": "2030-01-01 00:01"}]
    found = (await listed(app))["q"]
    assert found.payload is None
    assert found.payload_function is not None
    assert found.payload_function.endswith("day")
    triggered = await app.queue("q").schedules.trigger("q")
    await run(app)
    assert triggered
    assert len(seen) == 2


async def test_a_declared_schedule_catches_up_after_a_restart(app: Penstock, clock: Clock) -> None:
    """No worker for an hour: the next one fires the last tick, and misses the others."""
    seen: list[str] = []

    @app.schedule(Every(60))
    @app.handler("q")
    async def note(payload: Any, job: Job) -> None:
        seen.append(job.id)

    await run(app)
    clock.advance(hours=1)
    await run(app)
    assert seen == ["q@2030-01-01T01:00:00Z"]
    assert (await listed(app))["q"].missed == 59


async def test_at_once_puts_one_job_when_the_schedule_is_first_declared(app: Penstock, clock: Clock) -> None:
    """Two workers one after the other: one job."""
    seen: list[bool] = []

    @app.schedule(Cron("@yearly"), at_once=True)
    @app.handler("q")
    async def note(payload: Any, job: Job) -> None:
        seen.append(job.tick is not None and job.tick.manual)

    await run(app)
    await run(app)
    assert seen == [True]


# code and run time --------------------------------------------------------------------------------


async def test_changes_win_over_the_declaration_until_reset(app: Penstock, clock: Clock) -> None:
    """Field by field: the changed times hold, the declared payload too, also after a new worker has declared."""
    seen: list[Any] = []

    @app.schedule(Every(60), payload="declared")
    @app.handler("q")
    async def note(payload: Any) -> None:
        seen.append(payload)

    await run(app)
    schedules = app.queue("q").schedules
    changed = await schedules.edit("q", when=Every(hours=1))
    assert (changed.source, changed.changed) == ("code", ["when"])
    clock.advance(60)
    await run(app)
    assert seen == []
    reset = await schedules.reset("q")
    assert reset.changed == []
    assert reset.when == Every(60)
    clock.advance(60)
    await run(app)
    assert seen == ["declared"]


async def test_a_declared_schedule_cannot_be_removed_but_paused(app: Penstock, clock: Clock) -> None:
    """The error of `remove` names the remedies; a pause survives a new worker."""
    seen: list[Any] = []

    @app.schedule(Every(60))
    @app.handler("q")
    async def note(payload: Any) -> None:
        seen.append(payload)

    await run(app)
    schedules = app.queue("q").schedules
    with pytest.raises(ValueError, match="pause it, or remove it from the code"):
        await schedules.remove("q")
    await schedules.pause("q")
    clock.advance(minutes=5)
    await run(app)
    assert seen == []
    assert (await listed(app))["q"].paused_since == T


async def test_a_run_time_schedule_of_a_declared_name_wins_until_reset(app: Penstock, clock: Clock) -> None:
    """Made by `put` before the code declares it: code is listed as the source, the changes hold."""
    await app.queue("q").schedules.put("q", Every(hours=1), payload="api")

    @app.schedule(Every(60), payload="code")
    @app.handler("q")
    async def note(payload: Any) -> None:
        raise AssertionError("no tick is due")

    await run(app)
    found = (await listed(app))["q"]
    assert (found.source, found.payload, found.when) == ("code", "api", Every(hours=1))
    assert (await app.queue("q").schedules.reset("q")).payload == "code"


# mistakes -----------------------------------------------------------------------------------------


@pytest.mark.only("sqlite")
async def test_wrong_declarations_name_their_argument(app: Penstock) -> None:
    """Errors at the declaration, so that a program does not start with them."""

    @app.task
    async def task(number: int) -> None: ...

    @app.handler("q", schedule=Every(60))
    async def handler(payload: Any) -> None: ...

    with pytest.raises(TypeError, match="when"):
        app.schedule("* * * * *")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="number"):
        app.schedule(Every(60))(task)
    with pytest.raises(TypeError, match="number"):
        app.schedule(Every(60), kwargs={"number": "x"})(task)
    with pytest.raises(TypeError, match="payload"):
        app.schedule(Every(60), payload=[1])(task)
    with pytest.raises(TypeError, match="kwargs"):
        app.schedule(Every(60), name="other", kwargs={})(handler)
    with pytest.raises(ValueError, match="name"):
        app.schedule(Every(60))(handler)
    with pytest.raises(TypeError, match="schedule"):
        app.listen("x", handler, schedule="* * * * *")  # type: ignore[arg-type]
    with pytest.raises(InvalidPayload, match="payload"):
        app.schedule(Every(60), name="bad", payload={1j})(handler)

    async def later(tick: Tick) -> int:
        return 1

    with pytest.raises(TypeError, match="payload"):
        app.schedule(Every(60), name="later", payload=later)(handler)
    with pytest.raises(TypeError, match="decorates"):
        app.schedule(Every(60))(3)  # type: ignore[type-var]


@pytest.mark.only("sqlite")
async def test_a_scheduled_function_without_a_handler_is_found_at_the_start(app: Penstock) -> None:
    """A worker refuses to start; so it does for a queue that has no handler."""

    @app.schedule(Every(60))
    async def lonely() -> None: ...

    with pytest.raises(ValueError, match="lonely"):
        await run(app)


@pytest.mark.only("sqlite")
async def test_the_handler_of_two_queues_needs_the_queue(app: Penstock, clock: Clock) -> None:
    """The decorator cannot choose; with `queue` it can."""

    async def both(payload: Any) -> None: ...

    app.listen("a", both)
    app.listen("b", both)
    with pytest.raises(ValueError, match="queue"):
        app.schedule(Every(60))(both)
    app.schedule(Every(60), queue="b")(both)
    app.schedule(Every(60), queue="c")(both)
    with pytest.raises(ValueError, match="'c'"):
        await run(app)


async def test_a_storage_without_schedules_refuses_them() -> None:
    """`NotSupported` at the call, and at the start of a worker that declares one."""
    other = Penstock(storage=WithoutSchedules(connect("memory:")))  # type: ignore[arg-type]
    async with other:
        with pytest.raises(NotSupported, match="schedules"):
            await other.queue("q").schedules.put("q", Every(60))

        @other.handler("q", schedule=Every(60))
        async def handler(payload: Any) -> None: ...

        with pytest.raises(NotSupported, match="schedules"):
            await run(other)


async def test_payloads_that_are_bound_to_their_job(clock: Clock) -> None:
    """Encrypted payloads are valid for one job each: the payload of a schedule is encrypted anew for each tick."""
    serde = Encrypted("json", Encrypted.new_key(), bind="job")
    app = Penstock("memory:", serde=serde, clock=clock)
    seen: list[Any] = []

    @app.handler("q", schedule=Schedule(Every(60), name="code", payload="declared"))
    async def note(payload: Any) -> None:
        seen.append(payload)

    async with app:
        made = await app.queue("q").schedules.put("api", Every(60), payload="made")
        assert made.payload == "made"
        for _ in range(3):
            await run(app)
            clock.advance(60)
    assert sorted(seen) == ["declared"] * 2 + ["made"] * 2
