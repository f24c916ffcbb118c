"""Spans and metrics of OpenTelemetry, read from in-memory exporters."""

from __future__ import annotations

import asyncio
from importlib.metadata import entry_points
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from penstock import Entry, InvalidPayload, Job, Outcome, Penstock, Retry, StorageUnavailable, Worker, sync
from penstock.storage import connect
from penstock.telemetry.otel import BUCKETS, PenstockInstrumentor, instrument, server_of
from penstock.testing import Clock


class Recorded:
    """Providers whose spans and metrics stay in memory."""

    def __init__(self) -> None:
        self.spans = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def instrument(self, app: Any, **options: Any) -> None:
        instrument(app, tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def named(self, name: str) -> list[ReadableSpan]:
        return [span for span in self.spans.get_finished_spans() if span.name == name]

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def points(self, name: str) -> list[Any]:
        data: Any = self.reader.get_metrics_data()
        return [
            point
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def ids(span: ReadableSpan) -> tuple[int, int]:
    return span.context.trace_id, span.context.span_id  # type: ignore[union-attr]


def links(span: ReadableSpan) -> list[tuple[int, int]]:
    return [(link.context.trace_id, link.context.span_id) for link in span.links]


async def test_a_job_that_nobody_waits_for_begins_a_trace_that_links_to_its_enqueue(
    app: Penstock, recorded: Recorded
) -> None:
    """The enqueue is a PRODUCER in the ambient trace, the run a CONSUMER; a header of the caller is kept."""
    recorded.instrument(app)
    app.listen("mail", lambda payload: None)
    with recorded.tracers.get_tracer("test").start_as_current_span("request"):
        token = context.attach(baggage.set_baggage("customer", "7"))
        await app.queue("mail").enqueue(1, id="a", group="g", headers={"own": "x"})
        context.detach(token)
    await Worker(app).drain()
    request, enqueue, process = (recorded.one(name) for name in ("request", "enqueue mail", "process mail"))
    assert enqueue.parent is not None
    assert (enqueue.parent.span_id, enqueue.kind) == (ids(request)[1], SpanKind.PRODUCER)
    assert attributes(enqueue) == {
        "messaging.system": "penstock", "messaging.destination.name": "mail", "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send", "messaging.message.id": "a", "penstock.enqueue.status": "queued",
    }  # fmt: skip
    assert (process.parent, process.kind, links(process)) == (None, SpanKind.CONSUMER, [ids(enqueue)])
    assert ids(process)[0] != ids(enqueue)[0]
    found = attributes(process)
    assert found.pop("penstock.job.wait") >= 0
    assert found == {
        "messaging.system": "penstock", "messaging.destination.name": "mail", "messaging.operation.name": "process",
        "messaging.operation.type": "process", "messaging.message.id": "a", "penstock.job.attempt": 1,
        "penstock.job.group": "g", "penstock.job.outcome": "completed",
    }  # fmt: skip
    assert process.instrumentation_scope is not None
    assert process.instrumentation_scope.schema_url == "https://opentelemetry.io/schemas/1.44.0"
    status = await app.queue("mail").status("a")
    assert status is not None
    assert set(status.headers) == {"own", "traceparent", "baggage"}


@pytest.mark.parametrize(
    ("parent", "called", "child"),
    [
        ("call", True, True),
        ("call", False, False),
        ("always", False, True),
        ("never", True, False),
    ],
)
async def test_the_run_of_a_call_is_a_child_of_its_enqueue(
    app: Penstock, recorded: Recorded, parent: Any, called: bool, child: bool
) -> None:
    """`parent` decides for every job instead; spans and baggage of the handler are inside of that of the run."""
    recorded.instrument(app, parent=parent)
    seen: list[Any] = []

    @app.handler("q")
    async def handle(payload: Any) -> None:
        seen.append(baggage.get_baggage("customer"))
        with recorded.tracers.get_tracer("test").start_as_current_span("inner"):
            await asyncio.sleep(0)

    async with Worker(app):
        token = context.attach(baggage.set_baggage("customer", "7"))
        id = None if called else (await app.queue("q").enqueue(1)).id
        await (app.queue("q").call(1) if id is None else app.queue("q").wait(id))
        context.detach(token)
    enqueue, process, inner = (recorded.one(name) for name in ("enqueue q", "process q", "inner"))
    assert (process.parent is not None and process.parent.span_id == ids(enqueue)[1]) is child
    assert links(process) == ([] if child else [ids(enqueue)])
    assert inner.parent is not None
    assert inner.parent.span_id == ids(process)[1]
    assert seen == ["7"]
    assert not trace.get_current_span().get_span_context().is_valid


async def test_many_jobs_have_one_span_or_one_each_besides(app: Penstock, recorded: Recorded) -> None:
    """With `create_spans` each job has a `create` span, the enqueue links to all, and each run to its own."""
    recorded.instrument(app, create_spans=True)
    app.listen("q", lambda payload: None)
    await app.queue("q").enqueue_many([Entry(1, id="a"), 2])
    await Worker(app).drain()
    created, enqueue, processed = recorded.named("create q"), recorded.one("enqueue q"), recorded.named("process q")
    assert enqueue.kind is SpanKind.CLIENT
    assert attributes(enqueue)["messaging.batch.message_count"] == 2
    assert links(enqueue) == [ids(each) for each in created]
    assert {tuple(links(each)) for each in processed} == {(ids(each),) for each in created}
    assert attributes(created[0])["messaging.message.id"] == "a"


async def test_a_batch_has_one_span_with_links_to_all_its_enqueues(app: Penstock, recorded: Recorded) -> None:
    """It has the number of jobs in place of the id of one; follow-ups are inside of it."""
    recorded.instrument(app)

    @app.handler("q", batch_size=3)
    async def handle(payloads: list[int], jobs: list[Job]) -> None:
        jobs[0].then("next", 1)

    for n in range(3):
        await app.queue("q").enqueue(n)
    await Worker(app).drain()
    process, follow_up = recorded.one("process q"), recorded.one("enqueue next")
    assert set(links(process)) == {ids(each) for each in recorded.named("enqueue q")}
    assert attributes(process)["messaging.batch.message_count"] == 3
    assert "messaging.message.id" not in attributes(process)
    assert follow_up.parent is not None
    assert follow_up.parent.span_id == ids(process)[1]


async def test_the_status_of_a_run_is_an_error_if_it_failed_and_not_if_it_asked_for_a_retry(
    app: Penstock, clock: Clock, recorded: Recorded
) -> None:
    """Each attempt has a span of its own, linked to the same enqueue."""
    recorded.instrument(app)
    ends: list[Any] = [Retry(delay=1), ValueError("no"), Outcome.fail(KeyError("k")), Outcome.retry(delay=1), 5]

    @app.handler("q", max_retries=10)
    async def handle(payload: Any) -> Any:
        end = ends.pop(0)
        if isinstance(end, Exception):
            raise end
        return end

    await app.queue("q").enqueue(1, id="a")
    for _ in range(5):
        await Worker(app).drain()
        clock.advance(3600)
    spans = recorded.named("process q")
    assert [attributes(each)["penstock.job.attempt"] for each in spans] == [1, 2, 3, 4, 5]
    assert [
        (attributes(each)["penstock.job.outcome"], each.status.status_code, attributes(each).get("error.type"))
        for each in spans
    ] == [
        ("retrying", StatusCode.UNSET, None),
        ("retrying", StatusCode.ERROR, "ValueError"),
        ("retrying", StatusCode.ERROR, "KeyError"),
        ("retrying", StatusCode.UNSET, None),
        ("completed", StatusCode.UNSET, None),
    ]
    assert {tuple(links(each)) for each in spans} == {(ids(recorded.one("enqueue q")),)}


async def test_a_timeout_is_an_error_of_its_own_type(app: Penstock, recorded: Recorded) -> None:
    """It is not the cancellation by which the run was ended."""
    recorded.instrument(app)

    @app.handler("q", timeout=0.01, max_timeouts=1)
    async def handle(payload: Any) -> None:
        await asyncio.Event().wait()

    await app.queue("q").enqueue(1)
    await Worker(app).drain()
    span = recorded.one("process q")
    assert (attributes(span)["error.type"], attributes(span)["penstock.job.outcome"]) == ("timeout", "failed")


async def test_a_payload_is_in_no_span(app: Penstock, recorded: Recorded) -> None:
    """An enqueue that fails for its payload has the type of the error, and no part of its message."""
    recorded.instrument(app)

    @app.task(queue="q")
    async def pay(card: str) -> None: ...

    with pytest.raises(InvalidPayload):
        await app.queue("q").enqueue({"card": object()})
    await app.queue("q").enqueue({"card": "4111 1111"})
    await Worker(app).drain()
    first = recorded.named("enqueue q")[0]
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "InvalidPayload")
    assert list(first.events) == []
    assert "4111" not in "".join(span.to_json() for span in recorded.spans.get_finished_spans())


async def test_metrics_count_and_time_enqueues_and_runs(app: Penstock, recorded: Recorded) -> None:
    """They have the queue and the operation, the type of an error, the buckets of the conventions, and no ids."""
    recorded.instrument(app)

    @app.handler("q", max_retries=0)
    async def handle(payload: int) -> None:
        if payload == 0:
            raise ValueError("no")

    await app.queue("q").enqueue_many([0, 1, 2])
    await Worker(app).drain()
    common = {"messaging.system": "penstock", "messaging.destination.name": "q"}
    [sent] = recorded.points("messaging.client.sent.messages")
    assert sent.value == 3
    assert sent.attributes == {
        **common, "messaging.operation.name": "enqueue", "messaging.operation.type": "send",
    }  # fmt: skip
    runs = {each.attributes.get("error.type"): each for each in recorded.points("messaging.client.consumed.messages")}
    assert {kind: each.value for kind, each in runs.items()} == {"ValueError": 1, None: 2}
    durations = recorded.points("messaging.process.duration")
    assert sum(each.count for each in durations) == 3
    assert tuple(durations[0].explicit_bounds) == BUCKETS
    [operation] = recorded.points("messaging.client.operation.duration")
    assert operation.count == 1


async def test_one_process_reports_the_queues_and_workers_of_all(
    app: Penstock, clock: Clock, recorded: Recorded
) -> None:
    """The gauges are read from the storage, if they are asked for."""
    recorded.instrument(app, gauges=True)
    app.listen("q", lambda payload: None)
    await app.queue("q").enqueue_many([1, 2])
    clock.advance(5)
    jobs = {each.attributes["penstock.job.state"]: each.value for each in recorded.points("penstock.queue.jobs")}
    assert (jobs["queued"], jobs["failed"]) == (2, 0)
    [oldest] = recorded.points("penstock.queue.oldest")
    assert (oldest.value, oldest.attributes) == (5.0, {"messaging.destination.name": "q"})
    units = {each.attributes["penstock.units.kind"]: each.value for each in recorded.points("penstock.worker.units")}
    assert units == {"capacity": 0, "allowed": 0, "busy": 0}


async def test_a_reservation_has_a_span_that_links_to_the_enqueues(app: Penstock, recorded: Recorded) -> None:
    """`reserve` is a CLIENT in the trace of the caller, with the number of jobs; one that gets none has no span."""
    recorded.instrument(app)
    queue = app.queue("mail")
    assert await queue.reserve() == []
    assert recorded.named("reserve mail") == []
    await queue.enqueue(1)
    await queue.enqueue(2)
    with recorded.tracers.get_tracer("test").start_as_current_span("request"):
        for reservation in await queue.reserve(limit=5):
            await reservation.complete()
    request, reserve = recorded.one("request"), recorded.one("reserve mail")
    assert reserve.parent is not None
    assert (reserve.parent.span_id, reserve.kind) == (ids(request)[1], SpanKind.CLIENT)
    assert sorted(links(reserve)) == sorted(ids(span) for span in recorded.named("enqueue mail"))
    assert attributes(reserve) == {
        "messaging.system": "penstock", "messaging.destination.name": "mail", "messaging.operation.name": "reserve",
        "messaging.operation.type": "receive", "messaging.batch.message_count": 2,
    }  # fmt: skip
    assert recorded.named("settle mail") == []
    [consumed] = recorded.points("messaging.client.consumed.messages")
    assert (consumed.value, consumed.attributes["messaging.operation.name"]) == (2, "reserve")


async def test_settles_have_spans_if_they_are_asked_for(app: Penstock, recorded: Recorded) -> None:
    """A call that records runs of two queues has a span for each; so has the end of a reservation."""
    recorded.instrument(app, settle_spans=True)
    for name in ("a", "b"):
        app.listen(name, lambda payload: None)
        await app.queue(name).enqueue(1)
    await app.queue("c").enqueue(1)
    await Worker(app, queues=["a", "b"]).drain()
    [reservation] = await app.queue("c").reserve()
    await reservation.complete()
    for name in ("a", "b", "c"):
        settle = recorded.one(f"settle {name}")
        assert (settle.kind, links(settle)) == (SpanKind.CLIENT, [ids(recorded.one(f"enqueue {name}"))])
        assert attributes(settle)["messaging.operation.type"] == "settle"
        assert attributes(settle)["messaging.batch.message_count"] == 1
        assert settle.status.status_code is StatusCode.UNSET


async def test_a_reservation_that_fails_has_a_span_with_the_error(
    app: Penstock, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span has no links, and the type of the error."""
    recorded.instrument(app)
    await app.queue("mail").enqueue(1)

    async def broken(*args: object) -> None:
        raise StorageUnavailable("no answer")

    monkeypatch.setattr(app.storage, "claim", broken)
    with pytest.raises(StorageUnavailable):
        await app.queue("mail").reserve()
    span = recorded.one("reserve mail")
    assert (span.status.status_code, links(span)) == (StatusCode.ERROR, [])
    assert attributes(span)["error.type"] == "StorageUnavailable"


def test_a_sync_app_is_traced_in_the_context_of_the_caller(recorded: Recorded) -> None:
    """`enqueue` runs on the calling thread, `call` on another; both are in the trace of the caller."""
    app = sync.Penstock("memory:")
    recorded.instrument(app)

    @app.task(queue="q")
    def double(n: int) -> int:
        return 2 * n

    with app, sync.Worker(app), recorded.tracers.get_tracer("test").start_as_current_span("request"):
        assert double.call(2) == 4
    request, enqueue, process = (recorded.one(name) for name in ("request", "enqueue q", "process q"))
    assert enqueue.parent is not None
    assert enqueue.parent.span_id == ids(request)[1]
    assert process.parent is not None
    assert process.parent.span_id == ids(enqueue)[1]


async def test_the_instrumentor_of_the_entry_point_traces_every_app(recorded: Recorded) -> None:
    """Those that exist and those that are made later; with a span for each enqueue of a sync app too."""
    [point] = entry_points(group="opentelemetry_instrumentor", name="penstock")
    assert point.load() is PenstockInstrumentor
    instrumentor = PenstockInstrumentor()
    assert instrumentor.instrumentation_dependencies() == ()
    early = Penstock("memory:")
    instrumentor.instrument(tracer_provider=recorded.tracers, meter_provider=recorded.meters, skip_dep_check=True)
    try:
        PenstockInstrumentor().instrument()  # a second time changes nothing
        late, plain = Penstock("memory:"), sync.Penstock("memory:")
    finally:
        instrumentor.uninstrument()
    for name, each in (("early", early), ("late", late), ("neither", Penstock("memory:"))):
        async with each:
            await each.queue(name).enqueue(1)
    with plain:
        plain.queue("plain").enqueue(1)
    names = [span.name for span in recorded.spans.get_finished_spans()]
    assert names == ["enqueue early", "enqueue late", "enqueue plain"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://user:secret@db.example:6380/2", {"server.address": "db.example", "server.port": 6380}),
        ("rediss://db.example/0", {"server.address": "db.example"}),
        ("redis+sentinel://s1:26379,s2:26379/primary/0", {"server.address": "s1", "server.port": 26379}),
        ("redis://[::1]:6379/0", {"server.address": "::1", "server.port": 6379}),
        ("unix:///run/redis.sock", {}),
        ("memory:", {}),
        ("sqlite:/tmp/a.db", {}),
    ],
)
def test_the_server_is_named_without_its_login(url: str, expected: dict[str, Any]) -> None:
    """A file or a socket has no address."""
    assert server_of(connect(url)) == expected


def test_an_unknown_parent_is_refused() -> None:
    """The error names the argument and the known values."""
    with pytest.raises(ValueError, match="parent must be one of 'call', 'always', 'never'"):
        instrument(Penstock("memory:"), parent="sometimes")  # type: ignore[arg-type]
