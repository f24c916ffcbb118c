"""OpenTelemetry: spans around enqueues, runs and reservations, joined by headers, and metrics of them.

It is built from the hooks of an app. The names are those of the semantic conventions for messaging 1.44.0.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Literal, get_args

from opentelemetry import context as contexts
from opentelemetry import metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, TracerProvider

from penstock._version import __version__
from penstock.client.app_setups import set_up_every_app
from penstock.client.entry import Entry
from penstock.client.sending import Sending
from penstock.errors import InvalidPayload, Retry
from penstock.host import AppHost, SyncApp, async_app
from penstock.model.headers import decode_headers
from penstock.model.hooks import Exchange, Running
from penstock.model.job import Claim
from penstock.model.outcome import Failed
from penstock.model.storage_info import Inspectable
from penstock.storage.base import Storage
from penstock.telemetry.fleet import FleetReader
from penstock.telemetry.flushing import FlushAtExit

__all__ = ["PenstockInstrumentor", "instrument"]

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"

#: The buckets (seconds) that the conventions ask for.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)

#: The header of a job whose caller waits for its result.
CALL_HEADER = "penstock-call"

Parent = Literal["call", "always", "never"]

_ADDRESS = re.compile(r"//(?:[^@/]*@)?(\[[^\]]*\]|[^:/,?]+)(?::(\d+))?")


def instrument(
    app: AppHost | SyncApp,
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    create_spans: bool = False,
    settle_spans: bool = False,
    parent: Parent = "call",
    gauges: bool = False,
) -> None:
    """Trace the enqueues and runs of an app, and measure them; by default with the global providers.

    A run is a child of its enqueue if the caller waits for the result (`call`), otherwise it begins a trace that
    links to the enqueue; `parent` "always" or "never" decides so for all. With `create_spans` each job of an
    `enqueue_many` has a span of its own, to which its run links. With `settle_spans` so has each queue of a call that
    records the ends of runs. With `gauges` this process also reports the jobs of
    all queues and the units of all workers, read from the storage: one process is enough.
    """
    if parent not in get_args(Parent):
        raise ValueError(f"parent must be one of {', '.join(map(repr, get_args(Parent)))}, not {parent!r}")
    host = async_app(app)
    instruments = Instruments(tracer_provider, meter_provider, server_of(host.storage))
    host.hooks.add("enqueue", EnqueueTracing(instruments, create_spans).around)
    host.hooks.add("run", RunTracing(instruments, parent).around)
    exchanges = ExchangeTracing(instruments)
    host.hooks.reserve.append(exchanges.around)
    if settle_spans:
        host.hooks.settle.append(exchanges.around)
    if gauges:
        FleetGauges(host, meter_provider)


class PenstockInstrumentor:
    """Instrumentor for `opentelemetry-instrument`: it traces every app of the process."""

    #: Functions that end what `instrument` has begun.
    _ends: ClassVar[list[Callable[[], None]]] = []

    def instrumentation_dependencies(self) -> Collection[str]:
        """Return the packages that must be there: none, for Penstock itself is."""
        return ()

    def instrument(self, **options: Any) -> None:
        """Instrument every app that exists or is made later; `options` are those of `instrument`."""
        if not self._ends:
            known = {name: options[name] for name in OPTIONS if name in options}
            self._ends.append(set_up_every_app(lambda app: instrument(app, **known)))

    def uninstrument(self, **options: Any) -> None:
        """Leave apps that are made from now on as they are."""
        while self._ends:
            self._ends.pop()()


OPTIONS = ("tracer_provider", "meter_provider", "create_spans", "settle_spans", "parent", "gauges")


def server_of(storage: Storage) -> dict[str, str | int]:
    """Return the attributes that name the server of a storage, none for a file."""
    where = storage.where if isinstance(storage, Inspectable) else ""
    found = _ADDRESS.search(where)
    if found is None or where.startswith(("sqlite:", "unix:")):
        return {}
    host, port = found.groups()
    return {"server.address": host.strip("[]"), **({} if port is None else {"server.port": int(port)})}


class Instruments:
    """The tracer and the instruments of a meter, and the attributes that all spans share."""

    def __init__(
        self,
        tracer_provider: TracerProvider | None,
        meter_provider: MeterProvider | None,
        server: Mapping[str, str | int],
    ) -> None:
        provider: Any = tracer_provider or trace.get_tracer_provider()
        self.flushing = FlushAtExit(lambda: getattr(provider, "force_flush", int)())
        self.tracer = trace.get_tracer("penstock", __version__, tracer_provider, SCHEMA)
        meter = metrics.get_meter("penstock", __version__, meter_provider, SCHEMA)
        self.server = server
        self.sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs that were enqueued.")
        self.consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Jobs that were given to a handler, or reserved."
        )
        self.operation = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Duration of enqueues, reservations and settles.",
            explicit_bucket_boundaries_advisory=BUCKETS,
        )
        self.process = meter.create_histogram(
            "messaging.process.duration", "s", "Duration of runs.", explicit_bucket_boundaries_advisory=BUCKETS
        )

    def attributes(self, queue: str, operation: str, kind: str) -> dict[str, str | int]:
        """Return the attributes of an operation on a queue."""
        return {
            "messaging.system": "penstock",
            "messaging.destination.name": queue,
            "messaging.operation.name": operation,
            "messaging.operation.type": kind,
            **self.server,
        }


class FleetGauges:
    """Observable gauges of all queues and workers, read on the thread of the metric reader."""

    def __init__(self, host: AppHost, meter_provider: MeterProvider | None) -> None:
        self._reader = FleetReader(host)
        meter = metrics.get_meter("penstock", __version__, meter_provider, SCHEMA)
        meter.create_observable_gauge("penstock.queue.jobs", [self._jobs], "{job}", "Jobs by state.")
        meter.create_observable_gauge("penstock.queue.oldest", [self._oldest], "s", "Age of the oldest queued job.")
        meter.create_observable_gauge("penstock.worker.units", [self._units], "{unit}", "Units of all workers.")

    def _jobs(self, options: CallbackOptions) -> Iterable[Observation]:
        for each in self._reader.read().queues:
            for state, count in each.sample.counts.items() if each.count else ():
                yield Observation(count, {"messaging.destination.name": each.name, "penstock.job.state": state.value})

    def _oldest(self, options: CallbackOptions) -> Iterable[Observation]:
        for each in self._reader.read().queues:
            if each.count:
                yield Observation((each.sample.oldest or 0) / 1000, {"messaging.destination.name": each.name})

    def _units(self, options: CallbackOptions) -> Iterable[Observation]:
        workers = self._reader.read().workers
        for kind in ("capacity", "allowed", "busy"):
            yield Observation(sum(getattr(worker, kind) for worker in workers), {"penstock.units.kind": kind})


class EnqueueTracing:
    """The hook around enqueues: a span, and its context in the headers of the jobs."""

    def __init__(self, instruments: Instruments, create_spans: bool) -> None:
        self._instruments = instruments
        self._create_spans = create_spans

    @contextmanager
    def around(self, sending: Sending) -> Generator[None]:
        """Begin a span, put its context into the headers, and end it with the answers."""
        ours = self._instruments
        count, many = len(sending.entries), len(sending.entries) != 1
        measured = ours.attributes(sending.queue, "enqueue", "send")
        attributes = dict(measured)
        if many:
            attributes["messaging.batch.message_count"] = count
        creating = self._create_spans and many
        links = [Link(self._create(sending.queue, entry)) for entry in sending.entries] if creating else []
        span = ours.tracer.start_span(
            f"enqueue {sending.queue}", None, SpanKind.CLIENT if creating else SpanKind.PRODUCER, attributes, links
        )
        if sending.waits:
            sending.headers[CALL_HEADER] = "1"
        began = time.perf_counter()
        try:
            with trace.use_span(span, record_exception=False, set_status_on_exception=False):
                if not creating:
                    propagate.inject(sending.headers)
                yield
        except BaseException as error:
            measured["error.type"] = type(error).__qualname__
            record_error(span, error)
            raise
        else:
            if not many and sending.answers:
                span.set_attribute("messaging.message.id", sending.answers[0].id)
                span.set_attribute("penstock.enqueue.status", str(sending.answers[0].status))
        finally:
            ours.sent.add(len(sending.answers) or (count if sending.follow_up else 0), measured)
            ours.operation.record(time.perf_counter() - began, measured)
            span.end()

    def _create(self, queue: str, entry: Entry) -> trace.SpanContext:
        """Make the span of one job of many, put its context into the job's headers, and return it."""
        attributes = self._instruments.attributes(queue, "create", "create")
        if entry.id is not None:
            attributes["messaging.message.id"] = entry.id
        span = self._instruments.tracer.start_span(f"create {queue}", None, SpanKind.PRODUCER, attributes)
        carrier: dict[str, str] = {}
        propagate.inject(carrier, trace.set_span_in_context(span))
        entry.headers = {**carrier, **(entry.headers or {})}
        span.end()
        return span.get_span_context()


class RunTracing:
    """The hook around runs: a span that is a child of the enqueue, or begins a trace and links to it."""

    def __init__(self, instruments: Instruments, parent: Parent) -> None:
        self._instruments = instruments
        self._parent = parent

    @contextmanager
    def around(self, running: Running) -> Generator[None]:
        """Begin the span of a run, current for its handler, and end it with the outcome."""
        ours, jobs = self._instruments, running.jobs
        ours.flushing.watch()
        measured = ours.attributes(running.queue, "process", "process")
        context, links = self._origin(running)
        span = ours.tracer.start_span(
            f"process {running.queue}", context, SpanKind.CONSUMER, {**measured, **attributes_of(running)}, links
        )
        token = contexts.attach(trace.set_span_in_context(span, context))
        began, outcome = time.perf_counter(), "completed"
        try:
            yield
        except BaseException as error:
            outcome = running.outcome(error)
            if failed_by(error, running):
                measured["error.type"] = type_of(error, running)
                record_error(span, error, type_of(error, running))
            raise
        else:
            outcome = running.outcome()
            if isinstance(running.returned, Failed):
                measured["error.type"] = type(running.returned.error).__qualname__
                record_error(span, running.returned.error)
        finally:
            contexts.detach(token)
            span.set_attribute("penstock.job.outcome", outcome)
            ours.consumed.add(len(jobs), measured)
            ours.process.record(time.perf_counter() - began, measured)
            span.end()

    def _origin(self, running: Running) -> tuple[Context, list[Link]]:
        """Return the context in which the span of a run begins, and its links."""
        headers = [job.headers for job in running.jobs]
        remote = propagate.extract(headers[0], Context())
        if len(headers) == 1 and self._is_child(headers[0]):
            return remote, []
        return trace.set_span_in_context(trace.INVALID_SPAN, remote), links_to(headers)

    def _is_child(self, headers: Mapping[str, str]) -> bool:
        return self._parent == "always" or (self._parent == "call" and CALL_HEADER in headers)


class ExchangeTracing:
    """The hook around reservations and settles: a span for each queue, with links to the enqueues of its jobs."""

    def __init__(self, instruments: Instruments) -> None:
        self._instruments = instruments

    @contextmanager
    def around(self, exchange: Exchange) -> Generator[None]:
        """Make the spans when the call has ended, so that their links are known; one without jobs has none."""
        began, start, failed = time.time_ns(), time.perf_counter(), None
        try:
            yield
        except BaseException as error:
            failed = error
            raise
        finally:
            by_queue: dict[str, list[Claim]] = {exchange.queue: []} if failed is not None and exchange.queue else {}
            for claim in exchange.claims:
                by_queue.setdefault(claim.queue, []).append(claim)
            for queue, claims in by_queue.items():
                self._end(exchange, queue, claims, began, time.perf_counter() - start, failed)
            del failed  # or its traceback and this frame would keep each other alive

    def _end(
        self, exchange: Exchange, queue: str, claims: list[Claim], began: int, took: float, failed: BaseException | None
    ) -> None:
        ours, receives = self._instruments, exchange.operation == "reserve"
        measured = ours.attributes(queue, exchange.operation, "receive" if receives else "settle")
        attributes = {**measured, "messaging.batch.message_count": len(claims)}
        span = ours.tracer.start_span(
            f"{exchange.operation} {queue}", None, SpanKind.CLIENT, attributes,
            links_to([decode_headers(claim.headers) for claim in claims]), began,
        )  # fmt: skip
        if failed is not None:
            measured["error.type"] = type(failed).__qualname__
            record_error(span, failed)
        if receives:
            ours.consumed.add(len(claims), measured)
        ours.operation.record(took, measured)
        span.end()


def links_to(headers: Iterable[Mapping[str, str]]) -> list[Link]:
    """Return links to the spans that created jobs with these headers, each once."""
    found = [trace.get_current_span(propagate.extract(each, Context())).get_span_context() for each in headers]
    return [Link(each) for each in {each.span_id: each for each in found}.values() if each.is_valid]


def attributes_of(running: Running) -> dict[str, str | int | float]:
    """Return the attributes of the jobs of a run."""
    job, jobs = running.job, running.jobs
    attributes: dict[str, str | int | float] = {
        "penstock.job.attempt": job.attempt,
        "penstock.job.wait": max(time.time() - job.run_at.timestamp(), 0.0),
    }
    if len(jobs) > 1:
        attributes["messaging.batch.message_count"] = len(jobs)
    else:
        attributes["messaging.message.id"] = job.id
    if job.group is not None:
        attributes["penstock.job.group"] = job.group
    return attributes


def failed_by(error: BaseException, running: Running) -> bool:
    """Return whether an exception is a failure: not if it asks for a retry, nor if the run was released."""
    return not isinstance(error, Retry) and running.outcome(error) in ("failed", "retrying")


def type_of(error: BaseException, running: Running) -> str:
    """Return the type of an error for attributes; that of a timeout is not that of the cancellation it caused."""
    return "timeout" if running.interruption == "timeout" else type(error).__qualname__


def record_error(span: Span, error: BaseException, kind: str | None = None) -> None:
    """Record an exception on a span; an `InvalidPayload` without its message, which may have a part of the payload."""
    kind = type(error).__qualname__ if kind is None else kind
    span.set_attribute("error.type", kind)
    if isinstance(error, InvalidPayload):
        span.set_status(Status(StatusCode.ERROR, kind))
        return
    span.record_exception(error)
    span.set_status(Status(StatusCode.ERROR, f"{kind}: {error}"))
