"""Actions on claims that workers, supervisors and reservations share, so that they cannot differ."""

from __future__ import annotations

from typing import Any

from penstock.errors import ErrorKind, InvalidPayload, JobError
from penstock.host import AppHost
from penstock.model.job import Claim, State
from penstock.model.outcome import Outcome, Raised
from penstock.model.resolution import Cancel, Complete, Fail, Release, Resolution, Retried, Stall
from penstock.model.serde import decode
from penstock.storage.base import Settled

__all__ = ["emit_settled"]

#: Events that are published to every process, so that they are emitted without local listeners too.
PUBLISHED = ("lease_lost", "invalid_data")


def emit_settled(
    host: AppHost, worker: str, claim: Claim, outcome: Outcome, resolution: Resolution, answer: Settled
) -> None:
    """Emit the events of one settled claim, named after the state that the storage answered."""
    invalid = isinstance(outcome, Raised) and outcome.invalid
    if not (host.listeners or answer.lost or invalid):
        return
    error = outcome.error if isinstance(outcome, Raised) else None
    if answer.lost:
        return _emit(host, worker, "lease_lost", claim)
    if answer.state is State.CANCELLED:
        return _emit(host, worker, "cancelled", claim)
    if invalid:
        _emit(host, worker, "invalid_data", claim, error=error)
    if error is not None and error.kind is ErrorKind.TIMEOUT:
        _emit(host, worker, "timed_out", claim, error=error)
    match resolution:
        case Complete(result):
            _emit(host, worker, "completed", claim, result=result)
        case Retried():
            _emit(host, worker, "retrying", claim, error=error)
        case Fail():
            _emit(host, worker, "failed", claim, error=error)
        case Release():
            _emit(host, worker, "released", claim)
        case Stall():
            _emit(host, worker, "stalled", claim)
        case Cancel():
            pass
    if isinstance(resolution, Complete | Fail):
        for new in resolution.then:
            host.emit("enqueued", queue=new.queue, id=new.id)


def _emit(
    host: AppHost, worker: str, name: str, claim: Claim, *, result: bytes | None = None, error: JobError | None = None
) -> None:
    if not host.listeners.wants(name) and name not in PUBLISHED:
        return
    value: Any = None
    if result is not None:
        try:
            value = decode(host.codec(claim.queue).result, result)
        except InvalidPayload:
            value = result
    host.emit(
        name, queue=claim.queue, id=claim.id, attempt=claim.attempts, result=value, error=error, worker=worker
    )  # fmt: skip
