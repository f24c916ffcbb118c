"""What a worker says of itself while it is there."""

from __future__ import annotations

from datetime import datetime

import msgspec

from penstock.clock import as_datetime

__all__ = ["Presence", "WorkerInfo", "worker_info"]


class Presence(msgspec.Struct, frozen=True, kw_only=True):
    """A worker's own words, sent with each beat. What an older or newer worker leaves out has its default.

    `started` is in milliseconds of the storage's clock; `busy` counts the capacity units in use, and `allowed`
    those that may be: an adaptive worker that cannot keep up allows itself less than its capacity.
    """

    host: str = ""
    pid: int = 0
    queues: list[str] = []
    started: int = 0
    capacity: int = 0
    allowed: int | None = None
    busy: int = 0

    def encode(self) -> bytes:
        return _encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Presence:
        """Read a worker's words back; what cannot be read is silence."""
        try:
            return _decode(data) if data else SILENT
        except msgspec.MsgspecError:
            return SILENT


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is there: who and where, the queues it serves, when it was heard of, how busy it then was.

    It is taken off the list at `until` unless it is heard of again; `started_at` is None if it did not say.
    """

    id: str
    host: str
    pid: int
    queues: list[str]
    capacity: int
    allowed: int
    busy: int
    started_at: datetime | None
    seen_at: datetime
    until: datetime


def worker_info(id: str, seen: int, until: int, words: bytes) -> WorkerInfo:
    """A worker as the user sees it, from what a storage keeps of it."""
    said = Presence.decode(words)
    return WorkerInfo(
        id=id,
        host=said.host,
        pid=said.pid,
        queues=said.queues,
        capacity=said.capacity,
        allowed=said.capacity if said.allowed is None else said.allowed,
        busy=said.busy,
        started_at=as_datetime(said.started) if said.started else None,
        seen_at=as_datetime(seen),
        until=as_datetime(until),
    )


SILENT = Presence()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Presence).decode
