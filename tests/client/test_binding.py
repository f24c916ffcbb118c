"""Signed and encrypted jobs are bound to their queue, or to their id: everything works there, and nothing elsewhere."""

from __future__ import annotations

import asyncio
from typing import Any, Literal

import pytest

from penstock import (
    Encrypted,
    Entry,
    ErrorKind,
    Event,
    Failure,
    InvalidPayload,
    Job,
    JobError,
    Penstock,
    Serde,
    Signed,
    State,
    Worker,
)
from penstock.model.failure import failure_payload
from penstock.model.job import Claim
from penstock.model.outcome import Complete
from penstock.storage.base import Request, Settlement
from penstock.testing import assert_enqueued, drain, inline
from tests.support import new
from tests.unit.test_binding import Compressed

KEY = Encrypted.new_key()
Bind = Literal["queue", "job"]
KINDS = [Signed, Encrypted]

pytestmark = pytest.mark.only("memory", "redis")


def keyed(kind: type[Any], bind: Bind = "queue") -> Any:
    return kind("json", KEY, bind=bind)


async def stored_payload(app: Penstock, queue: str, id: str) -> bytes:
    [found] = await app.storage.get(queue, [id])
    assert found is not None
    return found.payload


async def state_of(app: Penstock, queue: str, id: str) -> State:
    status = await app.queue(queue).status(id)
    assert status is not None
    return status.state


@pytest.mark.only("memory", "sqlite", "redis")
@pytest.mark.parametrize("kind", KINDS)
async def test_a_payload_put_into_another_queue_is_refused(app: Penstock, kind: type[Any]) -> None:
    """A payload of `small-refund`, copied into `large-transfer`, runs in neither job there; the keys are the same."""
    ran: list[Any] = []
    app.listen("small-refund", ran.append, serde=keyed(kind))
    app.listen("large-transfer", ran.append, serde=keyed(kind))
    await app.queue("small-refund").enqueue({"amount": 1}, id="a")
    data = await stored_payload(app, "small-refund", "a")
    await app.storage.put([new("large-transfer", "a", data), new("large-transfer", "b", data)])
    await Worker(app).drain()
    assert ran == [{"amount": 1}]
    for id in ("a", "b"):
        status = await app.queue("large-transfer").status(id)
        assert status is not None
        assert status.error is not None
        assert (status.state, status.error.kind, status.payload) == (State.FAILED, ErrorKind.PERMANENT, data)
        assert "belong to another namespace, queue or job" in status.error.message


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_a_payload_repeated_under_another_id(app: Penstock, kind: type[Any], bind: Bind) -> None:
    """With `bind="job"` the copy of a payload under another id is refused; with `bind="queue"` it runs."""
    ran: list[Any] = []
    app.listen("q", ran.append, serde=keyed(kind, bind))
    await app.queue("q").enqueue(1, id="a")
    await app.storage.put([new("q", "b", await stored_payload(app, "q", "a"))])
    await Worker(app).drain()
    assert await state_of(app, "q", "a") is State.COMPLETED
    assert await state_of(app, "q", "b") is (State.FAILED if bind == "job" else State.COMPLETED)
    assert len(ran) == (1 if bind == "job" else 2)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_payload_of_another_namespace_is_refused(app: Penstock, kind: type[Any]) -> None:
    """Apps of two namespaces with the same keys do not accept each other's payloads."""
    ran: list[Any] = []
    app.listen("q", ran.append, serde=keyed(kind))
    other = Penstock(storage=app.storage, namespace="elsewhere", serde=keyed(kind))
    await app.storage.put([other.queue("q").build_job(1, id="a")])
    await Worker(app).drain()
    assert ran == []
    assert await state_of(app, "q", "a") is State.FAILED


async def complete_with(app: Penstock, queue: str, id: str, result: bytes) -> None:
    """Complete a job with these bytes as its result, as a program with access to the storage can."""
    await app.storage.put([new(queue, id, b"1")])
    [claim] = (await app.storage.claim([Request(queue, 1)], "w", 60_000, "token")).claims
    await app.storage.settle([Settlement(queue, id, claim.token, Complete(result, None))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_a_payload_passed_off_as_a_result_and_a_result_of_another_job(
    app: Penstock, kind: type[Any], bind: Bind
) -> None:
    """A payload is no result; the result of another job is refused with `bind="job"`, that of another queue always."""
    app.listen("q", lambda payload: payload, serde=keyed(kind, bind))
    app.listen("other", lambda payload: payload, serde=keyed(kind, bind))
    queue = app.queue("q")
    await queue.enqueue("fake", id="payload")
    payload = await stored_payload(app, "q", "payload")
    await app.queue("other").enqueue("fake", id="x")
    await Worker(app).drain()
    [mine], [others] = await app.storage.get("q", ["payload"]), await app.storage.get("other", ["x"])
    assert mine is not None
    assert others is not None
    for id, data in (("1", payload), ("2", others.result)):
        assert data is not None
        await complete_with(app, "q", id, data)
        with pytest.raises(InvalidPayload):
            await queue.result(id)
    assert mine.result is not None
    await complete_with(app, "q", "3", mine.result)
    if bind == "job":
        with pytest.raises(InvalidPayload):
            await queue.result("3")
    else:
        assert await queue.result("3") == "fake"


@pytest.mark.parametrize("bind", ["queue", "job"])
@pytest.mark.parametrize("wrap", [False, True], ids=["plain", "compressed"])
async def test_every_call_works_on_bound_jobs(app: Penstock, bind: Bind, wrap: bool) -> None:
    """Enqueue, update, call, wait, follow-ups, batches, reserve, events and retry open what they protected."""
    inner = keyed(Encrypted, bind)
    serde: Serde = Compressed(inner) if wrap else inner
    events: list[Event] = []
    app.on("completed")(events.append)

    @app.handler("q", serde=serde)
    async def double(payload: int, job: Job) -> int:
        job.then("next", payload + 1, id=f"after {job.id}")
        return 2 * payload

    app.listen("next", lambda payloads: [-payload for payload in payloads], serde=keyed(Signed, bind), batch_size=5)
    queue = app.queue("q")
    await queue.enqueue_many([1, Entry(2, id="b")])
    await queue.enqueue(3, id="c")
    await queue.enqueue(4, id="c", on_conflict="update")
    generated = await queue.enqueue(5)
    async with Worker(app), asyncio.timeout(20):
        assert await queue.call(6, id="d") == 12
        assert await queue.call(7) == 14
        assert await queue.wait("c") == 8
        assert await queue.wait(generated.id) == 10
        assert await app.queue("next").wait("after c") == -5
    assert await queue.call(0, id="d") == 12
    assert (await queue.enqueue(0, id="d")).result == 12
    assert {event.result for event in events if event.queue == "q"} == {2, 4, 8, 10, 12, 14}
    assert await queue.retry("d", completed=True) == 1
    [held] = await queue.reserve()
    assert (held.id, held.payload) == ("d", 6)
    await held.complete("by hand")
    assert await queue.result("d") == "by hand"
    assert {job.payload for job in await queue.find("completed")} == {1, 2, 4, 5, 6, 7}


@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_the_event_stream_has_results_of_bound_jobs(app: Penstock, bind: Bind) -> None:
    """The event of a completed job has its result decoded."""
    app.listen("q", lambda payload: payload, serde=keyed(Signed, bind))
    async with app.events("completed") as stream:
        await app.queue("q").enqueue("value", id="a")
        await Worker(app).drain()
        async with asyncio.timeout(20):
            assert (await anext(stream)).result == "value"


@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_tasks_and_the_test_kit_work_on_bound_jobs(app: Penstock, bind: Bind) -> None:
    """A task, `inline`, `drain` and `assert_enqueued` work with serdes that are bound."""

    @app.task(serde=keyed(Encrypted, bind))
    async def add(a: int, b: int) -> tuple[int, int]:
        return a, b

    await add.enqueue(1, 2)
    await assert_enqueued(app, "add", payload={"a": 1, "b": 2})
    assert [event.result for event in await drain(app)] == [[1, 2]]
    with inline(app):
        assert await add.call(3, 4) == (3, 4)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_matching_jobs_are_cancelled_whatever_their_bytes(app: Penstock, kind: type[Any], bind: Bind) -> None:
    """`cancel_matching` compares opened payloads, since no two encrypted ones are alike; forged jobs do not match."""
    queue = app.queue("q", serde=Compressed(keyed(kind, bind)))
    await queue.enqueue_many([Entry({"n": 1}, id="a"), Entry({"n": 2}, id="b"), Entry({"n": 1}, id="c")])
    await app.storage.put([new("q", "forged", b'{"n":1}')])
    assert await queue.cancel_matching({"n": 1}) == ["a", "c"]
    with pytest.raises(
        InvalidPayload, match="payload cannot be encoded as JSON: objects of type set_iterator"
    ) as error:
        await queue.cancel_matching([iter({"CANARY"})])
    assert "CANARY" not in repr(error.value)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bind", ["queue", "job"])
async def test_a_fail_handler_gets_the_payload_of_its_queue_and_of_no_other(
    app: Penstock, kind: type[Any], bind: Bind
) -> None:
    """A fail job is opened as one of the queue that it belongs to, whatever queue its record names."""
    failures: list[Failure] = []

    def fail(payload: Any) -> None:
        raise ValueError("no")

    app.listen("large-transfer", fail, serde=keyed(kind, bind), on_failure=failures.append, max_retries=0)
    app.listen("small-refund", fail, serde=keyed(kind, bind), max_retries=0)
    await app.queue("large-transfer").enqueue("large", id="a")
    await app.queue("small-refund").enqueue("small", id="a")
    data = await stored_payload(app, "small-refund", "a")
    for queue in ("small-refund", "large-transfer"):
        record = failure_payload(Claim(queue, "a", "t", data), JobError("ValueError", "no"))
        await app.storage.put([new("large-transfer/failures", f"forged {queue}", record)])
    await Worker(app).drain()
    assert sorted((failure.payload for failure in failures), key=repr) == sorted([data, data, "large"], key=repr)
