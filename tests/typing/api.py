"""The types of the public surface, for a type checker. Nothing here is run: `test_types.py` checks it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

from penstock import (
    EVERY,
    BulkAction,
    BulkPreview,
    Cancelled,
    Cron,
    Discarded,
    Encrypted,
    Enqueued,
    Entry,
    Event,
    Every,
    Job,
    JobStatus,
    Limit,
    LimitInfo,
    Page,
    Penstock,
    Queue,
    Rate,
    Retry,
    Schedule,
    ScheduleInfo,
    Signed,
    State,
    Tick,
    Update,
    Worker,
    sync,
)

app = Penstock(
    "memory:", serde=Signed("json", ["a secret of sixteen"]), result_serde=Encrypted("msgpack", Encrypted.new_key())
)


@app.task
async def add(a: int, b: int = 2) -> int:
    return a + b


@app.task
def greet(name: str, *, loud: bool = False) -> str:
    return name


@app.task(queue="mail", max_retries=3, timeout=timedelta(minutes=1))
async def send(to: list[str], job: Job | None = None) -> None: ...


@app.task(name="half")
def half(value: float, /) -> float | None:
    return value / 2


@app.handler("thumbnails", timeout=30)
async def thumbnail(payload: dict[str, str], job: Job) -> str:
    return payload["name"]


def arguments(tick: Tick) -> dict[str, int]:
    return {"a": tick.nominal.day}


@app.schedule(Cron("0 2 * * *", tz="Europe/Paris"), kwargs={"a": 1}, overlap="queue")
@app.task(schedule=[Every(minutes=5), Schedule(Cron("@daily"), name="daily", payload=arguments)])
async def nightly(a: int, job: Job | None = None) -> int:
    tick = None if job is None else job.tick
    assert_type(tick, Tick | None)
    return a


async def schedules() -> None:
    assert_type(await nightly.call(1), int)
    own = app.queue("mail").schedules
    assert_type(await own.put("s", Every(60), payload=1, jitter=timedelta(seconds=5)), ScheduleInfo)
    assert_type(await own.list(), Page[ScheduleInfo])
    assert_type(await own.next("s"), list[datetime])
    assert_type(await own.trigger("s", overlap="allow"), Enqueued)
    assert_type(await app.schedules(), list[ScheduleInfo])


@app.handler("plain")
def plain(payload: bytes) -> int:
    return len(payload)


@app.on("completed")
async def completed(event: Event) -> None:
    assert_type(event.name, str)
    assert_type(event.at, datetime)
    assert_type(event.attempt, int)


@app.on("failed")
def failed(event: Event) -> int:
    return event.attempt


async def tasks() -> None:
    assert_type(await add(1, b=2), int)
    assert_type(greet("x", loud=True), str)
    assert_type(half(1.5), float | None)
    assert_type(await add.enqueue(1, b=2), Enqueued)
    assert_type(await add.enqueue(1), Enqueued)
    assert_type(await add.call(1, b=2), int)
    assert_type(await greet.call("x"), str)
    assert_type(await half.call(1.5), float | None)
    assert_type(await send.enqueue(["a"]), Enqueued)
    assert_type(await send.call(["a"]), None)
    assert_type(add.name, str)
    assert_type(add.queue, Queue)
    assert_type(add.entry(1, b=2), Entry)
    assert_type(add.payload(1), dict[str, Any])
    assert_type(await add.enqueue_many([(1,), add.entry(1, b=2)]), list[Enqueued])
    assert_type(await add.result("id"), int)
    assert_type(await add.result("id", default=None), int | None)
    assert_type(await greet.wait("id", timeout=5), str)


async def options() -> None:
    later = add.options(
        id="a", delay=timedelta(hours=1), priority=5, headers={"k": "v"}, on_conflict=Update(run_at=False)
    )
    assert_type(await later.enqueue(1, b=2), Enqueued)
    assert_type(await later.options(timeout=5, run_timeout=None, result_ttl=60).call(1), int)
    assert_type(await add.options(max_attempts=1, max_retries=None, group="g", run_at=1.5).enqueue(1), Enqueued)
    assert_type(await add.options(id="a", debounce=5, max_wait=60, cost=2).enqueue(1), Enqueued)
    assert_type(await add.options(id="a", window=60).call(1), int)


async def handlers() -> None:
    assert_type(await thumbnail({"name": "x"}, Job.__new__(Job)), str)
    assert_type(plain(b""), int)
    assert_type(await completed(Event(name="", at=datetime.now())), None)
    assert_type(failed(Event(name="", at=datetime.now())), int)


async def queue() -> None:
    async with app as opened:
        assert_type(opened, Penstock)
    mail = app.queue("mail", serde="msgpack")
    assert_type(mail, Queue)
    answer = await mail.enqueue({"to": "x"}, id="a", delay=5, on_conflict=Update(payload=True, run_at="if_later"))
    assert_type(answer, Enqueued)
    assert_type(answer.id, str)
    assert_type(answer.state, State)
    assert_type(bool(answer), bool)
    assert_type(await mail.enqueue_many([1, Entry(2, id="b")]), list[Enqueued])
    assert_type(await mail.status("a"), JobStatus | None)
    assert_type(await mail.find("failed"), Page[JobStatus])
    assert_type(await mail.find(State.FAILED), Page[JobStatus])
    assert_type(await mail.counts(), dict[State, int])
    assert_type(await mail.cancel("a", running="signal"), Cancelled)
    assert_type(await mail.discard(["a"]), list[Discarded])
    assert_type(await mail.clear(["failed", State.CANCELLED], older_than=60), int)
    await mail.enqueue({}, expires=timedelta(minutes=5))
    held = await mail.enqueue({}, id="a", window=timedelta(hours=1), cost=3)
    assert_type(held.until, datetime | None)
    await mail.enqueue({}, id="a", debounce=5, max_wait=timedelta(minutes=1))
    await mail.enqueue({}, id="a", delay=5, on_conflict=Update(run_at="if_later", max_wait=60))
    await mail.enqueue_many([Entry({}, id="a", window=5, cost=2)])
    assert_type(await mail.retry(["a"]), int)
    assert_type(await mail.pause(), bool)
    assert_type(await app.queues(), list[str])


@app.handler("limited", limit=Limit(concurrency=2), group_limit=Limit(rate=Rate(10, timedelta(seconds=1)), burst=5))
async def limited(payload: int) -> None:
    raise Retry(delay=1, pause="group")


async def limits() -> None:
    mail = app.queue("mail")
    app.limit("llm", Limit(rate="500/min", by="cost"))
    assert_type(await mail.set_limit(Limit(concurrency=5, weight=3), group="acme"), bool)
    assert_type(await mail.set_limit(Limit(concurrency=1, ordered=False), group=EVERY), bool)
    assert_type(await mail.reset_limit(EVERY), bool)
    assert_type(await mail.limit("acme"), LimitInfo)
    assert_type(await mail.limits(), Page[LimitInfo])
    assert_type((await mail.limit()).limit, Limit | None)
    assert_type(await app.set_limit("llm", Limit()), bool)
    assert_type(await app.reset_limit("llm"), bool)
    assert_type(await mail.pause("acme", datetime.now(UTC), by="ops"), bool)
    assert_type(await mail.resume(group="acme"), bool)
    assert_type(await mail.delete(settings=True), int)


async def bulk() -> None:
    retry = app.bulk("retry", "state:failed", who="ann")
    assert_type(await retry.preview(), BulkPreview)
    assert_type(await retry.run(delay=timedelta(seconds=5), on_step=print), BulkAction)
    assert_type(await app.bulk_actions(), list[BulkAction])
    assert_type(await app.stop_bulk("a"), BulkAction | None)
    assert_type(sync.Penstock("memory:").bulk("delete", "state:completed").run(), BulkAction)


async def worker() -> None:
    async with Worker(app, queues=["mail"], capacity=10, lease=timedelta(seconds=5)) as started:
        assert_type(started, Worker)
    assert_type(await Worker(app).drain(), None)


def sync_worker() -> None:
    with sync.Worker(sync.Penstock("memory:"), queues=["mail"]) as started:
        assert_type(started, sync.Worker)
        assert_type(started.release_all(), int)
    assert_type(sync.Worker(app, processes=2).run(), None)
    assert_type(sync.Worker(app).drain(scheduled=True), None)


async def call_and_reserve() -> None:
    mail = app.queue("mail")
    assert_type(await mail.call(1, timeout=5), Any)
    assert_type(await mail.wait("a"), Any)
    for reservation in await mail.reserve(limit=5, wait=1):
        assert_type(reservation.id, str)


async def events() -> None:
    async for event in app.events(["completed"], queue="mail"):
        assert_type(event, Event)


async def inside(job: Job) -> None:
    assert_type(job.id, str)
    assert_type(job.attempt, int)
    assert_type(await job.progress(0.5, "half"), bool)
    assert_type(bool(job.cancelled), bool)
    assert_type(job.then("mail", {"to": "x"}, delay=5), str)
