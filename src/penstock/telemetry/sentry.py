"""Sentry: an event for each job that fails for good, and spans of enqueues and runs.

It is built from the hooks of the apps; nothing is patched. Payloads and results are never sent.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Literal, get_args

import sentry_sdk
from sentry_sdk.consts import OP, SPANDATA
from sentry_sdk.integrations import Integration
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.tracing import TransactionSource
from sentry_sdk.utils import event_from_exception

from penstock.client.app_setups import set_up_every_app
from penstock.client.sending import Sending
from penstock.errors import PACKAGE, Retry, RunTimeout
from penstock.model.fingerprint import error_of, with_key
from penstock.model.hooks import Running
from penstock.model.outcome import Failed
from penstock.telemetry.flushing import FlushAtExit

__all__ = ["PenstockIntegration"]

Capture = Literal["failed", "every"]

ORIGIN = "auto.queue.penstock"

_flushing = FlushAtExit(lambda: sentry_sdk.flush(timeout=2))


class PenstockIntegration(Integration):
    """Integration for `sentry_sdk.init`: it watches every app of the process.

    `capture` is "failed" for one event when a job fails for good, or "every" for one event of each failed run; there is
    none for `Retry`. Each run has an isolation scope and a transaction, which continues the trace of its enqueue.
    """

    identifier = "penstock"

    def __init__(self, capture: Capture = "failed") -> None:
        if capture not in get_args(Capture):
            raise ValueError(f"capture must be one of {', '.join(map(repr, get_args(Capture)))}, not {capture!r}")
        self.capture: Capture = capture

    @staticmethod
    def setup_once() -> None:
        """Add the hooks to every app; the SDK calls this once in a process."""
        ignore_logger("penstock.worker.run_log")  # its lines about failed runs would be events, too
        set_up_every_app(add_hooks)


def add_hooks(app: Any) -> None:
    """Add the hooks to an app."""
    app.hooks.add("enqueue", around_enqueue)
    app.hooks.add("run", around_run)


def integration() -> PenstockIntegration | None:
    """Return the integration of the current client, None if it has none."""
    return sentry_sdk.get_client().get_integration(PenstockIntegration)


@contextmanager
def around_enqueue(sending: Sending) -> Generator[None]:
    """Make a `queue.publish` span, and put its context into the headers of the jobs."""
    if integration() is None:
        yield
        return
    with sentry_sdk.start_span(op=OP.QUEUE_PUBLISH, name=sending.queue, origin=ORIGIN) as span:
        span.set_data(SPANDATA.MESSAGING_SYSTEM, "penstock")
        span.set_data(SPANDATA.MESSAGING_DESTINATION_NAME, sending.queue)
        sending.headers.update(dict(sentry_sdk.get_current_scope().iter_trace_propagation_headers(span=span)))
        yield
        if len(sending.answers) == 1:
            span.set_data(SPANDATA.MESSAGING_MESSAGE_ID, sending.answers[0].id)


@contextmanager
def around_run(running: Running) -> Generator[None]:
    """Make a transaction of a run, in a scope of its own, and capture its error."""
    found = integration()
    if found is None:
        yield
        return
    _flushing.watch()
    job = running.job
    with sentry_sdk.isolation_scope() as scope:
        scope.clear_breadcrumbs()
        scope.set_tag("penstock.queue", running.queue)
        scope.set_context("penstock", {"queue": running.queue, "job_id": job.id, "attempt": job.attempt})
        transaction = sentry_sdk.continue_trace(
            job.headers, op=OP.QUEUE_PROCESS, name=running.queue, source=TransactionSource.TASK, origin=ORIGIN
        )
        with sentry_sdk.start_transaction(transaction) as span:
            span.set_data(SPANDATA.MESSAGING_SYSTEM, "penstock")
            span.set_data(SPANDATA.MESSAGING_DESTINATION_NAME, running.queue)
            span.set_data(SPANDATA.MESSAGING_MESSAGE_ID, job.id)
            span.set_data(SPANDATA.MESSAGING_MESSAGE_RETRY_COUNT, job.retries)
            latency = max(time.time() - job.run_at.timestamp(), 0.0) * 1000
            span.set_data(SPANDATA.MESSAGING_MESSAGE_RECEIVE_LATENCY, latency)
            try:
                yield
            except BaseException as error:
                capture(found, running, error)
                raise
            else:
                if isinstance(running.returned, Failed):
                    capture(found, running, running.returned.error, raised=False)
                else:
                    span.set_status("ok")


def users_part(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without its first frames that are of this package: their variables have the payload."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
        trace = trace.tb_next
    return trace


def capture(found: PenstockIntegration, running: Running, error: BaseException, raised: bool = True) -> None:
    """Send an event of an error, unless it is one that `capture` leaves out."""
    outcome = running.outcome(error if raised else None)
    wanted = ("failed",) if found.capture == "failed" else ("failed", "retrying")
    if isinstance(error, Retry) or outcome not in wanted:
        return
    if running.interruption == "timeout":
        timeout = RunTimeout("the run took longer than its timeout")
        timeout.__cause__, error = error, timeout
    event, hint = event_from_exception(
        (type(error), error, users_part(error.__traceback__)),
        client_options=sentry_sdk.get_client().options,
        mechanism={"type": PenstockIntegration.identifier, "handled": False},
    )
    key = with_key(error_of(error), running.queue).key
    event["fingerprint"] = ["{{ default }}", *([key] if key else [])]
    sentry_sdk.capture_event(event, hint=hint)
