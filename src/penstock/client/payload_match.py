"""Finding jobs by their payload: encoded bytes are compared, those inside of signatures and encryption."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.errors import InvalidPayload
from penstock.model.formats import RawSerde
from penstock.model.job import Snapshot
from penstock.model.serde import Codec, Serde, decode, encode, innermost, with_innermost

__all__ = ["payload_matcher"]


def payload_matcher(codec: Codec, payload: Any) -> Callable[[Snapshot], bool]:
    """Return a function that returns whether a job has this payload.

    Wrappers may give different bytes for the same value, and bytes that are valid for one job only, so the bytes
    inside them are compared.
    """
    inner = innermost(codec.payload)
    data = encode(inner, payload, "payload") if inner is codec.payload else _encode_inner(codec.payload, payload)

    def matches(job: Snapshot) -> bool:
        if job.format is not None:
            return False
        if inner is codec.payload:
            return job.payload == data
        try:
            return decode(with_innermost(codec.payload_for(job.id), RawSerde()), job.payload) == data
        except InvalidPayload:
            return False

    return matches


def _encode_inner(serde: Serde, payload: Any) -> bytes:
    """Return the bytes of a payload inside the wrappers; an error has no part of the value."""
    return decode(with_innermost(serde, RawSerde()), encode(serde, payload, "payload"))
