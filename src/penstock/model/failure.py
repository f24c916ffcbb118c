"""The failure that a fail handler gets, and the serde of fail jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import UNREADABLE, InvalidPayload, JobError
from penstock.model.context import JobInfo
from penstock.model.job import Claim
from penstock.model.serde import Serde, decode

__all__ = ["Failure", "FailureSerde", "failure_payload"]


class Failure(msgspec.Struct, frozen=True):
    """A job that failed for good: its payload (bytes if it cannot be decoded), the job of its last run, the error."""

    payload: Any
    job: JobInfo
    error: JobError


class _Record(msgspec.Struct, frozen=True, array_like=True):
    claim: Claim
    error: JobError


class FailureSerde:
    """Serde of fail jobs: it keeps the bytes of the failed payload, decoded by the serde of the original queue."""

    def __init__(self, inner: Serde, type: Any = Any) -> None:
        self._inner = inner
        self._type = type

    def __repr__(self) -> str:
        return f"FailureSerde({self._inner!r})"

    def dumps(self, value: Any, /) -> bytes:
        raise InvalidPayload("cannot be enqueued here: workers put a Failure into a fail queue when a job fails")

    def loads(self, data: bytes, type: Any, /) -> Failure:
        try:
            record = _decode_record(data)
        except UNREADABLE as error:
            raise InvalidPayload(f"{len(data)} bytes are not a stored Failure: {error}") from error
        try:
            payload = decode(self._inner, record.claim.payload, self._type)
        except InvalidPayload:
            payload = record.claim.payload
        return Failure(payload, JobInfo(record.claim), record.error)


def failure_payload(claim: Claim, error: JobError) -> bytes:
    """Return the payload of a fail job."""
    return _encode(_Record(claim, error))


_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(_Record).decode
