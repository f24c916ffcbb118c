"""reserve: user code claims jobs, holds them and settles them, as with Worqr."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from penstock import Entry, Event, InvalidPayload, LeaseLost, Penstock, PermanentError, State, claims
from penstock.client.reservation import Reservation
from penstock.client.reservations import PURGE_CALLS
from penstock.storage.base import MAX_BATCH
from penstock.testing import Clock
from tests.support import Backend, eventually, forget_all

#: How soon (seconds) a hint must arrive: sooner than the slow poll.
SOON = 4.0
#: A lease (seconds) that is renewed every few milliseconds.
SHORT = 0.03


async def one(app: Penstock, queue: str = "q", **options: Any) -> Reservation:
    [taken] = await app.queue(queue).reserve(**options)
    return taken


async def shown(app: Penstock, id: str = "a", queue: str = "q") -> Any:
    status = await app.queue(queue).status(id)
    assert status is not None
    return status


def events_of(app: Penstock) -> list[Event]:
    events: list[Event] = []
    app.on("*")(events.append)
    return events


def counted(app: Penstock, verb: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Count the calls of a verb of the app's storage; returns a function that returns the count."""
    calls: list[None] = []
    real = getattr(app.storage, verb)

    async def call(*args: Any, **options: Any) -> Any:
        answer = await real(*args, **options)
        calls.append(None)
        return answer

    monkeypatch.setattr(app.storage, verb, call)
    return lambda: len(calls)


# taking ------------------------------------------------------------------------------------------


async def test_a_job_is_taken_and_completed(app: Penstock) -> None:
    """A reservation knows its job, and completing it records the result (WQ-11, WQ-12, WQ-T5)."""
    queue = app.queue("q")
    await queue.enqueue({"n": 1}, id="a", group="g", headers={"k": "v"})
    taken = await one(app)
    assert (taken.id, taken.queue, taken.payload, taken.group, taken.attempt) == ("a", "q", {"n": 1}, "g", 1)
    assert (taken.retries, taken.stalls, taken.timeouts, taken.headers) == (0, 0, 0, {"k": "v"})
    assert not taken.cancelled
    status = await shown(app)
    assert (status.state, status.worker) == (State.RUNNING, app.reservations.worker)
    assert await taken.complete([1, 2]) is State.COMPLETED
    assert await queue.result("a") == [1, 2]
    assert await queue.reserve() == []


async def test_many_at_once_in_order(app: Penstock) -> None:
    """Up to `limit` jobs come in the order of the queue; an empty queue gives none (WQ-T4, WQ-T7)."""
    queue = app.queue("q")
    assert await queue.reserve(limit=5) == []
    await queue.enqueue_many([Entry(n, id=f"j{n}") for n in range(7)])
    first = await queue.reserve(limit=5)
    assert [each.id for each in first] == ["j0", "j1", "j2", "j3", "j4"]
    rest = await queue.reserve(limit=1000)
    assert [each.payload for each in rest] == [5, 6]
    await first[1].release()
    assert [each.id for each in await queue.reserve(limit=5)] == ["j1"]


async def test_one_of_a_group_at_a_time(app: Penstock) -> None:
    """Only the first job of a group is reserved, and the next when that is settled."""
    queue = app.queue("q")
    await queue.enqueue_many([Entry(n, id=f"{g}{n}", group=g) for n in range(2) for g in "ab"])
    heads = await queue.reserve(limit=10)
    assert [each.id for each in heads] == ["a0", "b0"]
    await heads[1].complete()
    assert [each.id for each in await queue.reserve(limit=10)] == ["b1"]


async def test_nothing_is_handed_out_while_paused(app: Penstock) -> None:
    """A paused queue gives [] until it is resumed, also to a waiting reserve."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    await queue.pause()
    assert await queue.reserve() == []
    task = asyncio.create_task(queue.reserve(wait=30))
    assert await queue.reserve(wait=0.02) == []
    await queue.resume()
    [taken] = await asyncio.wait_for(task, SOON)
    await taken.complete()


async def test_waiting_for_a_job(app: Penstock) -> None:
    """A waiting reserve returns a job as soon as there is one, and [] when the time is over (WQ-T6)."""
    queue = app.queue("q")
    assert await queue.reserve(wait=timedelta(milliseconds=10)) == []
    task = asyncio.create_task(queue.reserve(limit=3, wait=30))
    await queue.enqueue(1, id="a")
    [taken] = await asyncio.wait_for(task, SOON)
    assert taken.id == "a"
    await taken.complete()


async def test_waiting_for_a_job_that_falls_due(backend: Backend) -> None:
    """A scheduled job is handed out when its time comes, without another hint."""
    async with Penstock(storage=backend.build()) as app:
        queue = app.queue("q")
        await queue.enqueue(1, id="a", delay=0.1)
        [taken] = await asyncio.wait_for(queue.reserve(wait=30), SOON)
        assert taken.id == "a"
        await taken.complete()
        await forget_all(app.storage)


@pytest.mark.parametrize(
    ("options", "error", "name"),
    [
        ({"limit": 0}, ValueError, "limit"),
        ({"limit": 1001}, ValueError, "limit"),
        ({"limit": True}, TypeError, "limit"),
        ({"wait": -1}, ValueError, "wait"),
        ({"lease": 0}, ValueError, "lease"),
        ({"lease": "10"}, TypeError, "lease"),
    ],
)
async def test_bad_arguments_are_named(app: Penstock, options: Any, error: type[Exception], name: str) -> None:
    """A bad argument takes nothing and is named."""
    await app.queue("q").enqueue(1)
    with pytest.raises(error, match=name):
        await app.queue("q").reserve(**options)
    assert (await app.queue("q").counts())[State.QUEUED] == 1


async def test_a_cancelled_reserve_releases_the_job_it_claimed(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that was claimed for a cancelled reserve is released at its position, the attempt refunded."""
    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    claimed = asyncio.Event()
    real = app.storage.claim

    async def claim(*args: Any) -> Any:
        answer = await real(*args)
        claimed.set()
        await asyncio.sleep(0)
        return answer

    monkeypatch.setattr(app.storage, "claim", claim)
    task = asyncio.create_task(queue.reserve(wait=30))
    await claimed.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    status = await shown(app)
    assert (status.state, status.attempts) == (State.QUEUED, 0)
    assert not list(app.reservations._held)


# settling ----------------------------------------------------------------------------------------


async def test_the_same_outcome_again_is_fine(app: Penstock) -> None:
    """Settling twice with one outcome is one settling; any other raises LeaseLost and changes nothing."""
    await app.queue("q").enqueue(1, id="a")
    taken = await one(app)
    assert await taken.complete("x") is State.COMPLETED
    assert await taken.complete("x") is State.COMPLETED
    for other in (taken.complete("y"), taken.fail("no"), taken.retry(), taken.release(), taken.extend()):
        with pytest.raises(LeaseLost, match=r"'a'.*'q'.*settled before \(complete\)"):
            await other
    assert await app.queue("q").result("a") == "x"


async def test_failing_counts_like_a_raised_exception(app: Penstock, clock: Clock) -> None:
    """fail is retried after the backoff by the queue's options, until the retries are used up (WQ-13)."""
    app.listen("q", lambda payload: None, max_retries=1, min_backoff=5)
    await app.queue("q").enqueue(1, id="a")
    assert await (await one(app)).fail(ValueError("first")) is State.RETRYING
    assert await app.queue("q").reserve() == []
    clock.advance(5)
    again = await one(app)
    assert (again.attempt, again.retries) == (2, 1)
    assert await again.fail("second") is State.FAILED
    error = (await shown(app)).error
    assert (error.type, error.message, error.kind) == ("RuntimeError", "second", "retriable")


async def test_a_permanent_failure_is_the_last(app: Penstock) -> None:
    """A permanent error is not retried, and its fail job is there in the same step."""
    app.listen("q", lambda payload: None, on_failure=lambda failure: None)
    await app.queue("q").enqueue({"n": 1}, id="a")
    taken = await one(app)
    assert await taken.fail(PermanentError("no")) is State.FAILED
    failure = (await one(app, "q/failures")).payload
    assert (failure.payload, failure.job.id, failure.error.message) == ({"n": 1}, "a", "no")


async def test_a_jobs_own_limits_win(app: Penstock) -> None:
    """Bounds given at enqueue apply to reservations too."""
    await app.queue("q").enqueue(1, id="a", max_attempts=1, result_ttl=0)
    await app.queue("q").enqueue(1, id="b", result_ttl=0)
    first, second = await app.queue("q").reserve(limit=2)
    assert await first.retry(delay=0) is State.FAILED
    await second.complete()
    assert await app.queue("q").status("b") is None


async def test_a_retry_at_a_time(app: Penstock, clock: Clock) -> None:
    """retry puts the job off to a time, by a delay, or by the usual backoff."""
    await app.queue("q").enqueue(1, id="a")
    assert await (await one(app)).retry(at=clock.time() + 60) is State.RETRYING
    assert (await shown(app)).run_at.timestamp() == clock.time() + 60
    clock.advance(60)
    taken = await one(app)
    with pytest.raises(ValueError, match="not both"):
        await taken.retry(at=1, delay=1)
    with pytest.raises(ValueError, match="delay"):
        await taken.retry(delay=-1)
    await taken.retry(delay=timedelta(seconds=7))
    assert (await shown(app)).run_at.timestamp() == clock.time() + 7


async def test_a_release_keeps_the_place(app: Penstock) -> None:
    """A released job is the next again and its attempt is refunded (WQ-D3)."""
    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    assert await (await one(app)).release() is State.QUEUED
    taken = await one(app)
    assert (taken.id, taken.attempt) == ("a", 1)


async def test_a_result_that_cannot_be_encoded(app: Penstock) -> None:
    """complete refuses such a result by name, and the job is still held."""
    await app.queue("q").enqueue(1, id="a")
    taken = await one(app)
    with pytest.raises(InvalidPayload, match="result"):
        await taken.complete(object())
    assert await taken.complete("text") is State.COMPLETED


# as a block --------------------------------------------------------------------------------------


async def test_a_block_completes(app: Penstock) -> None:
    """The end of the block completes with None, unless the job was settled inside."""
    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    async with await one(app) as taken:
        assert taken.id == "a"
    async with await one(app) as taken:
        await taken.complete("value")
    assert [await app.queue("q").result(id) for id in "ab"] == [None, "value"]


async def test_a_block_that_raises_fails(app: Penstock) -> None:
    """An exception fails the job as if a handler had raised it, and goes on."""
    await app.queue("q").enqueue(1, id="a")
    with pytest.raises(PermanentError, match="no"):
        async with await one(app):
            raise PermanentError("no")
    status = await shown(app)
    assert (status.state, status.error.type) == (State.FAILED, "PermanentError")
    assert "raise PermanentError" in status.error.traceback


@pytest.mark.parametrize("error", [asyncio.CancelledError, KeyboardInterrupt, SystemExit])
async def test_a_block_that_is_broken_off_releases(app: Penstock, error: type[BaseException]) -> None:
    """A cancelled task, Ctrl-C and an exit give the job back to its place."""
    await app.queue("q").enqueue(1, id="a")
    with pytest.raises(error):
        async with await one(app):
            raise error
    status = await shown(app)
    assert (status.state, status.attempts) == (State.QUEUED, 0)


async def test_a_block_that_lost_its_lease(app: Penstock, clock: Clock) -> None:
    """The loss is raised at the end of the block, but not in the place of the block's own exception."""

    async def block(error: Exception | None) -> None:
        async with await one(app):
            clock.advance(11)
            await app.storage.reap(["q"])
            if error:
                raise error

    await app.queue("q").enqueue(1, id="a")
    with pytest.raises(LeaseLost):
        await block(None)
    with pytest.raises(ZeroDivisionError):
        await block(ZeroDivisionError())


# leases ------------------------------------------------------------------------------------------


async def test_a_reservation_is_kept_alive(app: Penstock, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One task renews the reservations for as long as they are held."""
    renewals = counted(app, "renew", monkeypatch)
    await app.queue("q").enqueue_many([1, 2, 3])
    held = await app.queue("q").reserve(limit=3, lease=SHORT)
    for _ in range(5):
        seen = renewals()
        await eventually(lambda seen=seen: renewals() > seen)
        clock.advance(SHORT * 0.9)
    seen = renewals()
    await eventually(lambda: renewals() > seen)
    assert await app.storage.reap(["q"]) == []
    assert [await each.complete() for each in held] == [State.COMPLETED] * 3
    await eventually(lambda: app.reservations._renewing is None or app.reservations._renewing.done())


async def test_settling_after_the_lease_was_lost_changes_nothing(app: Penstock, clock: Clock) -> None:
    """A holder whose lease is over changes nothing: the next one has the job (WQ-D8)."""
    events = events_of(app)
    await app.queue("q").enqueue(1, id="a")
    stale = await one(app)
    clock.advance(11)
    taken = await one(app)
    assert (taken.id, taken.attempt, taken.stalls) == ("a", 2, 1)
    for settling in (stale.complete("stale"), stale.complete("stale"), stale.fail("no"), stale.extend()):
        with pytest.raises(LeaseLost, match=r"'a'.*'q'.*no longer held"):
            await settling
    assert stale.cancelled
    assert await taken.complete("fresh") is State.COMPLETED
    assert await app.queue("q").result("a") == "fresh"
    names = [event.name for event in events]
    assert names == ["enqueued", "started", "stalled", "started", "lease_lost", "completed"]


async def test_a_loss_is_noticed_in_the_background(app: Penstock, clock: Clock) -> None:
    """`cancelled` is set as soon as a renewal answers that the claim is gone, also with its queue."""
    await app.queue("q").enqueue_many([1, 2])
    first, second = await app.queue("q").reserve(limit=2, lease=SHORT)
    await app.queue("q").delete()
    await asyncio.wait_for(asyncio.gather(first.cancelled, second.cancelled), SOON)
    with pytest.raises(LeaseLost, match="deleted"):
        await first.complete()


async def test_a_cancel_request_reaches_the_holder(app: Penstock) -> None:
    """`cancelled` is set with the next renewal; a value completes, anything else ends as cancelled (WQ-D10)."""
    queue = app.queue("q")
    await queue.enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    first, second = await queue.reserve(limit=2, lease=SHORT)
    for id in "ab":
        assert (await queue.cancel(id, running="signal")).status == "cancel_requested"
    await asyncio.wait_for(asyncio.gather(first.cancelled, second.cancelled), SOON)
    assert await first.complete("done all the same") is State.COMPLETED
    assert await second.release() is State.CANCELLED


async def test_a_lease_is_extended(app: Penstock, clock: Clock) -> None:
    """extend renews now, with another length if one is given."""
    await app.queue("q").enqueue(1, id="a")
    taken = await one(app)
    clock.advance(9)
    await taken.extend(lease=60)
    clock.advance(59)
    assert await app.queue("q").reserve() == []
    await taken.extend()
    clock.advance(59)
    assert await taken.complete() is State.COMPLETED
    with pytest.raises(ValueError, match="lease"):
        await taken.extend(lease=0)


async def test_the_lease_of_a_garbage_collected_reservation_expires(app: Penstock, clock: Clock) -> None:
    """A reservation that is garbage is not renewed: the job comes back after its lease (WQ-D2)."""
    await app.queue("q").enqueue(1, id="a")
    taken = await one(app)
    del taken
    gc.collect()
    assert not list(app.reservations._held)
    clock.advance(11)
    assert (await one(app)).stalls == 1


@pytest.mark.only("sqlite", "redis", "valkey", "cluster")
async def test_closing_the_app_gives_everything_back(app: Penstock) -> None:
    """Closing an app releases its reservations and sets their `cancelled` (WQ-14, WQ-D1)."""
    queue = app.queue("q")
    other = Penstock(storage=app.storage)
    await queue.enqueue_many([Entry(n, id=f"j{n}") for n in range(3)])
    first, second = await queue.reserve(limit=2)
    [third] = await other.queue("q").reserve()
    await app.close()
    assert first.cancelled
    with pytest.raises(LeaseLost, match="release"):
        await first.complete()
    assert await second.release() is State.QUEUED
    assert not app.is_open
    await app.open()
    assert [job.id for job in await queue.find("queued")] == ["j0", "j1"]
    assert [job.attempts for job in await queue.find("queued")] == [0, 0]
    assert await third.complete() is State.COMPLETED
    await other.reservations.close()


# what is not handed out --------------------------------------------------------------------------


async def test_too_many_stalls_are_not_handed_out(app: Penstock, clock: Clock) -> None:
    """A job that killed too many of its holders fails, and the next one is handed out (WQ-D13)."""
    app.listen("q", lambda payload: None, max_stalls=1)
    events = events_of(app)
    await app.queue("q").enqueue_many([Entry(1, id="a"), Entry(2, id="b")])
    lost = await one(app)
    clock.advance(11)
    taken = await one(app)
    assert (lost.id, taken.id) == ("a", "b")
    status = await shown(app)
    assert (status.state, status.error.kind, status.attempts) == (State.FAILED, "stall", 1)
    emitted = [(event.name, event.id, event.attempt) for event in events if event.name in ("stalled", "failed")]
    assert emitted == [("stalled", "a", 1), ("failed", "a", 1)]


async def test_a_payload_that_cannot_be_decoded_is_not_handed_out(app: Penstock) -> None:
    """The job fails as permanent, `invalid_data` is emitted, and the next one is reserved."""

    def handle(payload: int) -> None: ...

    app.listen("q", handle)
    events = events_of(app)
    await app.queue("q").enqueue_many([Entry("text", id="a"), Entry(2, id="b")])
    taken = await one(app)
    assert (taken.id, taken.payload) == ("b", 2)
    status = await shown(app)
    assert (status.state, status.payload, status.error.kind) == (State.FAILED, "text", "permanent")
    assert [event.name for event in events if event.id == "a"] == ["enqueued", "started", "invalid_data", "failed"]


async def test_a_reservation_emits_the_events_that_a_worker_would(app: Penstock) -> None:
    """Every transition of a reservation has its event, with the holder's name, the result and the error."""
    events = events_of(app)
    await app.queue("q").enqueue_many([Entry(n, id=str(n)) for n in range(4)])
    held = await app.queue("q").reserve(limit=4)
    await held[0].complete("value")
    await held[1].fail("no")
    await held[2].fail(PermanentError("never"))
    await held[3].release()
    emitted = [event for event in events if event.name not in ("enqueued", "started")]
    assert [(event.name, event.id) for event in emitted] == [
        ("completed", "0"),
        ("retrying", "1"),
        ("failed", "2"),
        ("released", "3"),
    ]
    assert emitted[0].result == "value"
    assert [event.error and event.error.message for event in emitted] == [None, "no", "never", None]
    assert {event.worker for event in emitted} == {app.reservations.worker}
    assert [event.attempt for event in events if event.name == "started"] == [1] * 4


async def test_a_reservation_that_fails_for_good_emits_enqueued_for_its_fail_job(app: Penstock) -> None:
    """A permanent failure of a reservation emits `failed`, then `enqueued` with the queue and id of the fail job."""
    app.listen("q", lambda payload: None, on_failure=lambda failure: None)
    await app.queue("q").enqueue(1, id="a")
    held = await one(app)
    events = events_of(app)
    await held.fail(PermanentError("no"))
    [fail_job] = await app.queue("q/failures").find()
    assert [(event.name, event.queue, event.id) for event in events] == [
        ("failed", "q", "a"),
        ("enqueued", "q/failures", fail_job.id),
    ]


async def test_a_refused_reservation_that_fails_for_good_emits_enqueued_for_its_fail_job(app: Penstock) -> None:
    """A job whose payload cannot be decoded is failed instead of reserved, and its fail job is announced."""

    def numbers(payload: int) -> None: ...

    app.listen("q", numbers, on_failure=lambda failure: None)
    await app.queue("q").enqueue("text", id="a")
    events = events_of(app)
    assert await app.queue("q").reserve() == []
    names = [event.name for event in events]
    assert names == ["started", "invalid_data", "failed", "enqueued"]
    assert events[-1].queue == "q/failures"


# purging -----------------------------------------------------------------------------------------


async def test_reserve_purges_jobs_whose_time_is_over(
    app: Penstock, backend: Backend, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue that only reservations serve keeps no record after the TTLs are over."""
    monkeypatch.setattr(claims, "PURGE_INTERVAL", 0.0)
    queue = app.queue("q")
    await queue.enqueue_many(list(range(35)))
    for taken in await queue.reserve(limit=30):
        await taken.complete(1)
    for taken in await queue.reserve(limit=5):
        await taken.fail(PermanentError("no"))
    assert (await queue.counts())[State.FAILED] == 5
    clock.advance(days=35)
    assert await queue.reserve() == []
    await eventually(lambda: backend.leftovers() == [])


async def test_reserve_purges_now_and_then(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first reserve of a queue purges it, the next ones do not until the interval is over."""
    purges = counted(app, "purge", monkeypatch)
    for _ in range(3):
        await app.queue("q").reserve()
    assert purges() == 1
    await app.queue("other").reserve()
    assert purges() == 2


async def test_purge_of_many_jobs_goes_on_with_the_next_reserve(app: Penstock, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reserve purges a bounded number of jobs; the next one goes on at once."""
    found = iter([MAX_BATCH] * 6 + [3])
    asked: list[Any] = []

    async def purge(queues: Any, limit: int = MAX_BATCH) -> int:
        asked.append(queues)
        return next(found)

    monkeypatch.setattr(app.storage, "purge", purge)
    await app.queue("q").reserve()
    assert len(asked) == PURGE_CALLS
    for _ in range(3):
        await app.queue("q").reserve()
    assert len(asked) == 7
