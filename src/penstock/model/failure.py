"""The failure that a fail handler gets, and the serde of fail jobs."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.errors import UNREADABLE, InvalidPayload, JobError
from penstock.model.context import JobInfo
from penstock.model.job import Claim
from penstock.model.serde import Codec, decode

__all__ = ["Failure", "FailureSerde", "failed_claim", "failure_payload", "replace_failed_claim"]


class Failure(msgspec.Struct, frozen=True):
    """A job that failed for good: its payload (bytes if it cannot be decoded), the job of its last run, the error."""

    payload: Any
    job: JobInfo
    error: JobError


class _Record(msgspec.Struct, frozen=True, array_like=True):
    claim: Claim
    error: JobError


class FailureSerde:
    """Serde of fail jobs: it keeps the bytes of the failed payload, decoded by the serde of the original queue.

    That serde is bound to the original queue, which follows from the name of the fail queue and not from the
    record: the payload of any other queue is not opened here, and is given as its bytes.
    """

    def __init__(self, queue: str, codec: Codec, type: Any = Any) -> None:
        #: The queue of the failed jobs, and its serdes.
        self.queue = queue
        self.codec = codec
        self._type = type

    def __repr__(self) -> str:
        return f"FailureSerde({self.codec.payload!r})"

    def dumps(self, value: Any, /) -> bytes:
        raise InvalidPayload("cannot be enqueued here: workers put a Failure into a fail queue when a job fails")

    def loads(self, data: bytes, type: Any, /) -> Failure:
        try:
            record = _decode_record(data)
        except UNREADABLE as error:
            raise InvalidPayload(f"{len(data)} bytes are not a stored Failure: {error}") from error
        try:
            payload = decode(self.codec.payload_for(record.claim.id), record.claim.payload, self._type)
        except InvalidPayload:
            payload = record.claim.payload
        return Failure(payload, JobInfo(record.claim), record.error)


def failure_payload(claim: Claim, error: JobError) -> bytes:
    """Return the payload of a fail job."""
    return _encode(_Record(claim, error))


def failed_claim(data: bytes) -> Claim | None:
    """Return the claim in the payload of a fail job, None if the bytes are no such payload."""
    try:
        return _decode_record(data).claim
    except UNREADABLE:
        return None


def replace_failed_claim(data: bytes, claim: Claim) -> bytes:
    """Return the payload of a fail job with another claim."""
    return _encode(_Record(claim, _decode_record(data).error))


_encode = msgspec.msgpack.Encoder().encode
_decode_record = msgspec.msgpack.Decoder(_Record).decode
