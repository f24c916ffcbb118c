"""Results and errors: each is kept for its own TTL, whatever its value."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Event, JobFailed, Penstock, PermanentError, State, Worker
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import status_of

pytestmark = pytest.mark.only("memory", "sqlite", "redis")


async def test_a_handler_that_returns_nothing_completes(app: Penstock) -> None:
    """None is a result: the job completes after one run, and a duplicate is answered with it (PJ-D14, PJ-D15)."""
    runs: list[int] = []

    @app.handler("q")
    async def handle(payload: int) -> None:
        runs.append(payload)

    queue = app.queue("q")
    await queue.enqueue(1, id="a")
    await Worker(app).drain()
    again = await queue.enqueue(1, id="a")
    assert (again.status, again.result, runs) == ("completed", None, [1])
    assert await queue.result("a") is None
    assert await queue.result("a", default="none at all") is None


async def test_each_result_has_its_own_ttl(app: Penstock, clock: Clock) -> None:
    """A result with a TTL of a tenth of a second does not remove one with a TTL of a minute (PJ-31, PJ-D12)."""
    app.listen("q", lambda payload: payload)
    queue = app.queue("q")
    await queue.enqueue("long", id="long", result_ttl=60)
    await queue.enqueue("short", id="short", result_ttl=0.1)
    await Worker(app).drain()
    clock.advance(0.1)
    assert await queue.status("short") is None
    assert await queue.result("long") == "long"
    assert (await queue.enqueue("x", id="short")).status == "queued"
    assert (await queue.enqueue("x", id="long")).result == "long"


async def test_a_hundred_kilobytes_come_back(app: Penstock) -> None:
    """A large result is stored and read like any other (PJ-T9)."""
    app.listen("q", lambda payload: payload * 1024)
    await app.queue("q").enqueue("x" * 100, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == "x" * 102_400


async def test_every_byte_survives(app: Penstock) -> None:
    """A binary payload with every byte value is the same in the handler, the result and the status (PJ-D19)."""
    every = bytes(range(256))
    seen: list[bytes] = []

    @app.handler("q", serde="raw", result_serde="raw")
    async def handle(payload: bytes) -> bytes:
        seen.append(payload)
        if len(seen) == 1:
            raise ValueError("once more")
        return payload[::-1]

    await app.queue("q").enqueue(every, id="a")
    await Worker(app).drain()
    assert seen == [every, every]
    assert await app.queue("q").result("a") == every[::-1]
    assert (await status_of(app)).payload == every


async def test_payloads_and_results_have_separate_serdes(app: Penstock) -> None:
    """A custom serde gets only the payload, and the results may use another (PJ-22, PJ-24, PJ-D19)."""
    given: list[bytes] = []

    class Lines:
        """Serde of one text per line; it could not carry an envelope."""

        def dumps(self, value: Any, /) -> bytes:
            return "\n".join(value).encode()

        def loads(self, data: bytes, type: Any, /) -> Any:
            given.append(data)
            return data.decode().split("\n")

    app.listen("q", lambda payload: {"count": len(payload)}, serde=Lines(), result_serde="msgpack")
    await app.queue("q").enqueue(["one", "two"], id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == {"count": 2}
    assert set(given) == {b"one\ntwo"}


async def test_an_error_is_kept_by_type_message_kind_and_traceback(app: Penstock) -> None:
    """The type, message, kind and traceback of an error are kept, for status and caller (PJ-T15)."""

    @app.handler("q")
    async def handle(payload: int) -> None:
        raise LookupError("nothing there")

    await app.queue("q").enqueue(1, id="a", max_attempts=1)
    await Worker(app).drain()
    error = (await status_of(app)).error
    assert (error.type, error.message, error.kind) == ("LookupError", "nothing there", "retriable")
    assert "raise LookupError" in error.traceback
    with pytest.raises(JobFailed, match="nothing there") as failed:
        await app.queue("q").result("a")
    assert failed.value.error == error


async def test_update_result_ttl_of_finished_jobs(app: Penstock, clock: Clock) -> None:
    """update_result_ttl works for completed and failed jobs only, and refuses a bad value by name (PJ-S6, PJ-T17)."""

    @app.handler("q", failed_ttl=10, result_ttl=10)
    async def handle(payload: str) -> str:
        if payload == "bad":
            raise PermanentError("no")
        return payload

    queue = app.queue("q")
    await queue.enqueue("good", id="a")
    await queue.enqueue("bad", id="b")
    await Worker(app).drain()
    assert [await queue.update_result_ttl(id, 60) for id in "ab"] == [True, True]
    clock.advance(59)
    assert [(await status_of(app, id)).state for id in "ab"] == [State.COMPLETED, State.FAILED]
    clock.advance(1)
    assert [await queue.update_result_ttl(id, 60) for id in "ab"] == [False, False]
    await queue.enqueue("waiting", id="c")
    assert not await queue.update_result_ttl("c", 60)
    assert not await queue.update_result_ttl("unknown", 60)
    for bad in (-1, "60", float("nan")):
        with pytest.raises((TypeError, ValueError), match="ttl"):
            await queue.update_result_ttl("a", bad)  # type: ignore[arg-type]


async def test_a_listener_may_change_the_result_ttl(app: Penstock, clock: Clock) -> None:
    """A listener of completed can change the TTL, as the hook after an execution did (PJ-S7, PJ-T16)."""

    @app.on("completed")
    async def keep(event: Event) -> None:
        assert await app.queue(event.queue).update_result_ttl(event.id, 5 * event.result)

    app.listen("q", lambda payload: payload * 2)
    await app.queue("q").enqueue(1, id="a")
    await Worker(app).drain()
    await app.listeners.wait_finished()
    clock.advance(9)
    assert await app.queue("q").result("a") == 2
    clock.advance(1)
    assert await app.queue("q").status("a") is None
