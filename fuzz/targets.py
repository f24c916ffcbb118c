"""What is fuzzed: each target takes bytes and must end in a value or in the error that it promises."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from penstock.client.answers import status_of
from penstock.errors import InvalidPayload, JobError
from penstock.model.context import Progress
from penstock.model.encryption import Encrypted, Signed
from penstock.model.failure import FailureSerde
from penstock.model.formats import JsonSerde, MsgpackSerde, codec_for
from penstock.model.headers import decode_headers
from penstock.model.job import Claim, State
from penstock.model.options import JobLimits
from penstock.model.serde import decode
from penstock.model.worker_info import worker_info
from penstock.storage import connect, redact
from penstock.storage.redis.cursors import read_cursor
from penstock.storage.redis.encoding import read_claims, read_snapshot, read_worker
from penstock.storage.redis.event_codec import read_end_notice, read_event

__all__ = ["TARGETS"]

_CODEC = codec_for(JsonSerde(), None)
_SEALS = (Signed("raw", "a secret of sixteen"), Encrypted("raw", bytes(range(32))))


def words(data: bytes) -> None:
    """What is stored beside a payload: errors, progress, headers, limits, presence."""
    assert isinstance(JobError.decode(data), JobError)
    Progress.decode(data)
    decode_headers(data)
    JobLimits.decode(data)
    worker_info("w", 2**48 - 1, 0, data)


def payloads(data: bytes) -> None:
    """Serdes, typed and not, and fail jobs."""
    for serde, type in (
        (JsonSerde(), Any),
        (JsonSerde(), dict[str, list[int]]),
        (MsgpackSerde(), Any),
        (MsgpackSerde(), Claim),
        (FailureSerde(JsonSerde()), Any),
    ):
        with contextlib.suppress(InvalidPayload):
            decode(serde, data, type)


def seals(data: bytes) -> None:
    """Nothing is a sealed payload that was not sealed."""
    for seal in _SEALS:
        try:
            seal.loads(data, bytes)
        except InvalidPayload:
            continue
        raise AssertionError("a seal was forged")


def records(data: bytes) -> None:
    """The records of a job, cut out of the bytes: job, run, worker, end."""
    at = data[:4].ljust(4, b"\0")
    rest, parts = data[4:], list[bytes]()
    for size in at[:3]:
        parts.append(rest[:size])
        rest = rest[size:]
    run, worker, end = (part or None for part in parts)
    snapshot = read_snapshot("q", "id", 0, rest, run, worker, end, None)
    if snapshot is not None:
        status_of(snapshot, _CODEC)
    claims: list[Claim] = []
    read_claims("q", "t", [b"id"], [rest], None, claims)


def feeds(data: bytes) -> None:
    """Lines of the event feed, presence and cursors."""
    with contextlib.suppress(ValueError):
        read_event(data)
    with contextlib.suppress(ValueError):
        read_end_notice(data)
    found = read_worker(data[:8], data[8:])
    if found is not None:
        worker_info(found.id, found.seen, found.until, found.info)
    with contextlib.suppress(ValueError):
        read_cursor(data.decode("latin-1"), tuple(State))


def urls(data: bytes) -> None:
    """URLs of servers."""
    for scheme in ("", "redis://", "rediss://", "redis+sentinel://", "redis+cluster://", "unix://", "memory:"):
        url = scheme + data.decode("utf-8", "replace")
        redact(url)
        if not url.startswith(("file:", "sqlite:")):
            with contextlib.suppress(ValueError):
                connect(url)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (words, payloads, seals, records, feeds, urls)
}
