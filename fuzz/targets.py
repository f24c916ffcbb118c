"""Fuzz targets: each takes bytes, and must return a value or raise only its documented error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from fuzz.imports import imports
from penstock.client.answers import status_of
from penstock.errors import InvalidPayload, JobError
from penstock.model.context import Progress
from penstock.model.encryption import Encrypted, Signed
from penstock.model.failure import FailureSerde
from penstock.model.formats import JsonSerde, MsgpackSerde, codec_for
from penstock.model.headers import decode_headers
from penstock.model.job import Claim, State
from penstock.model.options import JobBounds
from penstock.model.serde import decode
from penstock.model.worker_info import worker_info
from penstock.storage import connect, redact
from penstock.storage.redis.cursors import read_cursor
from penstock.storage.redis.encoding import read_claims, read_snapshot, read_worker
from penstock.storage.redis.event_codec import read_end_notice, read_events

__all__ = ["CANARY", "TARGETS", "canary_urls"]

_CODEC = codec_for(JsonSerde(), None)
_SERDES = (Signed("raw", "a secret of sixteen"), Encrypted("raw", bytes(range(32))))


def stored_metadata(data: bytes) -> None:
    """Decode the bytes stored next to a payload: errors, progress, headers, bounds, worker info."""
    assert isinstance(JobError.decode(data), JobError)
    Progress.decode(data)
    decode_headers(data)
    JobBounds.decode(data)
    worker_info("w", 2**48 - 1, 0, data)


def payloads(data: bytes) -> None:
    """Decode payloads with typed and untyped serdes, and payloads of fail jobs."""
    for serde, type in (
        (JsonSerde(), Any),
        (JsonSerde(), dict[str, list[int]]),
        (MsgpackSerde(), Any),
        (MsgpackSerde(), Claim),
        (FailureSerde(JsonSerde()), Any),
    ):
        with contextlib.suppress(InvalidPayload):
            decode(serde, data, type)


def encryption(data: bytes) -> None:
    """Check that no bytes are accepted as a signed or encrypted payload without the key."""
    for serde in _SERDES:
        try:
            serde.loads(data, bytes)
        except InvalidPayload:
            continue
        raise AssertionError("bytes without the key were accepted")


def records(data: bytes) -> None:
    """Decode the records of a job, cut out of the bytes: job, run, worker, finish."""
    at = data[:4].ljust(4, b"\0")
    rest, parts = data[4:], list[bytes]()
    for size in at[:3]:
        parts.append(rest[:size])
        rest = rest[size:]
    run, worker, finish = (part or None for part in parts)
    snapshot = read_snapshot("q", "id", 0, rest, run, worker, finish, None)
    if snapshot is not None:
        status_of(snapshot, _CODEC)
    claims: list[Claim] = []
    read_claims("q", "t", [b"id"], [rest], None, claims)


def feeds(data: bytes) -> None:
    """Decode messages of the event feed, worker records and cursors."""
    read_events(data)
    with contextlib.suppress(ValueError):
        read_end_notice(data)
    found = read_worker(data[:8], data[8:])
    if found is not None:
        worker_info(found.id, found.seen, found.until, found.info)
    with contextlib.suppress(ValueError):
        read_cursor(data.decode("latin-1"), tuple(State))


#: A word that passwords in URLs contain, and that no text may show.
CANARY = "c4n4ry"
_SCHEMES = ("", "redis", "rediss", "redis+sentinel", "redis+cluster", "unix", "postgres", "memory")


def canary_urls(before: str, password: str, after: str) -> list[str]:
    """Return URLs of all schemes with a password between two other parts, and in an option."""
    urls = [f"{scheme}{mark}{before}{password}@{after}" for scheme in _SCHEMES for mark in ("://", ":")]
    return urls + [f"{scheme}://{after}?password={password}" for scheme in _SCHEMES]


def urls(data: bytes) -> None:
    """Parse and redact URLs of servers; the bytes are a part of the password, which no error may quote."""
    text = data.decode("utf-8", "replace")
    for url in (f"redis://{text}", *canary_urls("", f"{text}{CANARY}", "host"), *canary_urls(text, CANARY, "host/0")):
        assert CANARY not in redact(url), url
        if not url.startswith(("file:", "sqlite:")):
            try:
                shown = repr(connect(url))
            except ValueError as error:
                shown = str(error)
            assert CANARY not in shown, url


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each for each in (stored_metadata, payloads, encryption, records, feeds, urls, imports)
}
