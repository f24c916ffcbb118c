"""Events and spans of Sentry, read from a transport that sends nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from penstock import Outcome, Penstock, PermanentError, Retry, Worker, current_job
from penstock.client import app_setups
from penstock.telemetry.sentry import PenstockIntegration, add_hooks
from penstock.testing import Clock


class Kept(Transport):
    """A transport that keeps what it would send."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.items: list[tuple[str, dict[str, Any]]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if item.payload.json is not None:
                self.items.append((item.type or "", item.payload.json))

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [payload for each, payload in self.items if each == kind]


@pytest.fixture
def kept(app: Penstock) -> Iterator[Kept]:
    """Sentry with its hooks on the app of the test and on no other."""
    transport = Kept()
    if not app.hooks.run:  # the SDK sets an integration up once in a process
        add_hooks(app)
    yield transport
    sentry_sdk.get_global_scope().set_client(None)
    for setup in list(app_setups._setups):
        if setup is add_hooks:
            app_setups._setups.remove(setup)


def start(transport: Kept, app: Penstock, **options: Any) -> None:
    integration = PenstockIntegration(**options)
    sentry_sdk.init(
        dsn="http://key@127.0.0.1:9/1", transport=transport, traces_sample_rate=1.0, integrations=[integration],
        default_integrations=True, auto_enabling_integrations=False,
    )  # fmt: skip
    del app.hooks.run[1:], app.hooks.enqueue[1:]


async def run_to_the_end(app: Penstock, clock: Clock) -> None:
    for _ in range(4):
        await Worker(app).drain()
        clock.advance(3600)


async def test_a_job_is_one_event_when_it_fails_for_good(app: Penstock, clock: Clock, kept: Kept) -> None:
    """Neither the attempts before it nor `Retry` are events; the payload is nowhere."""
    start(kept, app)
    ends: list[Exception] = [ValueError("first"), Retry(delay=1), ValueError("last")]

    @app.handler("mail", max_retries=2)
    async def send(payload: Any) -> None:
        raise ends.pop(0)

    payload = "".join(["secret", "-", "payload"])  # the lines of the source are in an event
    await app.queue("mail").enqueue({"to": payload}, id="a")
    await run_to_the_end(app, clock)
    [event] = kept.of("event")
    error = event["exception"]["values"][-1]
    assert (error["type"], error["value"]) == ("ValueError", "last")
    assert error["mechanism"] == {"type": "penstock", "handled": False}
    assert event["contexts"]["penstock"] == {"queue": "mail", "job_id": "a", "attempt": 3}
    assert event["tags"]["penstock.queue"] == "mail"
    status = await app.queue("mail").status("a")
    assert status is not None
    assert status.error is not None
    assert event["fingerprint"] == ["{{ default }}", status.error.key]
    [frame] = error["stacktrace"]["frames"]
    assert frame["function"] == "send"
    assert "payload" in frame.pop("vars")  # the SDK's include_local_variables decides about these
    assert payload not in str(kept.of("event"))


async def test_every_failed_run_is_an_event_if_that_is_asked_for(app: Penstock, clock: Clock, kept: Kept) -> None:
    """`Retry` is none either; an error that the handler returns is one."""
    start(kept, app, capture="every")
    ends: list[Any] = [Retry(delay=1), ValueError("raised"), Outcome.fail("returned")]

    @app.handler("q", max_retries=2)
    def plain(payload: Any) -> Any:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    await app.queue("q").enqueue(1)
    await run_to_the_end(app, clock)
    assert [event["exception"]["values"][-1]["value"] for event in kept.of("event")] == ["raised", "returned"]


@pytest.mark.parametrize("end", ["permanent", "timeout"])
async def test_a_first_attempt_that_is_the_last_is_an_event(app: Penstock, kept: Kept, end: str) -> None:
    """A permanent error fails at once; a timeout is `RunTimeout`, with the place where the run was as its cause."""
    start(kept, app)

    @app.handler("q", timeout=0.01, max_timeouts=1)
    async def handle(payload: Any) -> None:
        if end == "permanent":
            raise PermanentError("no")
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1)
    await Worker(app).drain()
    [event] = kept.of("event")
    types = [each["type"] for each in event["exception"]["values"]]
    assert types == (["PermanentError"] if end == "permanent" else ["CancelledError", "RunTimeout"])


async def test_a_run_continues_the_trace_of_its_enqueue(app: Penstock, kept: Kept) -> None:
    """The enqueue is a `queue.publish` span, the run a `queue.process` transaction; each run has its own scope."""
    start(kept, app)
    seen: list[Any] = []

    @app.handler("q")
    async def handle(payload: Any) -> None:
        job = current_job()
        sentry_sdk.set_tag("seen", job and job.id)
        seen.append(dict(sentry_sdk.get_isolation_scope()._tags))

    with sentry_sdk.start_transaction(name="request"):
        await app.queue("q").enqueue(1, id="a")
        await app.queue("q").enqueue(2, id="b")
    await Worker(app).drain()
    assert [each["seen"] for each in seen] == ["a", "b"]
    request, *runs = kept.of("transaction")
    [first, second] = request["spans"]
    assert (first["op"], first["data"]["messaging.message.id"]) == ("queue.publish", "a")
    assert first["data"]["messaging.destination.name"] == "q"
    found = [run["contexts"]["trace"] for run in runs]
    assert [each["op"] for each in found] == ["queue.process"] * 2
    assert {each["trace_id"] for each in found} == {request["contexts"]["trace"]["trace_id"]}
    assert [each["parent_span_id"] for each in found] == [first["span_id"], second["span_id"]]
    assert found[0]["data"]["messaging.message.retry.count"] == 0
    assert found[0]["data"]["messaging.message.receive.latency"] >= 0
    status = await app.queue("q").status("a")
    assert status is not None
    assert set(status.headers) == {"sentry-trace", "baggage"}


async def test_without_a_client_the_hooks_do_nothing(app: Penstock, kept: Kept) -> None:
    """A job of an app whose process has no Sentry gets no headers."""
    await app.queue("q").enqueue(1, id="a")
    status = await app.queue("q").status("a")
    assert status is not None
    assert status.headers == {}


def test_an_unknown_capture_is_refused() -> None:
    """The error names the argument and the known values."""
    with pytest.raises(ValueError, match="capture must be one of 'failed', 'every'"):
        PenstockIntegration(capture="all")  # type: ignore[arg-type]
