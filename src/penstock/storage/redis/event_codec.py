"""Encoding of published messages: event records, notices of the ends of jobs, and the seal before each."""

from __future__ import annotations

import hmac
from hashlib import sha1
from struct import Struct

from penstock.model.job import State
from penstock.storage.base import EndNotice, EventRecord
from penstock.storage.redis.encoding import ENDS, text

__all__ = ["encode_event", "read_end_notice", "read_event", "seal", "unseal"]

_EVENT = Struct(">HIH")
_NOTICE = Struct(">HHB")


#: The length of a seal in bytes.
_SEAL_SIZE = 40


def seal(message: bytes, secret: str) -> bytes:
    """Return a message with its seal in front, as `seal` in `_queue.lua` does.

    The scripts of Redis have no other hash than SHA-1. That two texts with one SHA-1 can be found does not help to find
    the seal of a message without the secret.
    """
    key = secret.encode()
    inner = sha1(key + message, usedforsecurity=False).hexdigest().encode()
    return sha1(key + inner, usedforsecurity=False).hexdigest().encode() + message


def unseal(data: bytes, secret: str) -> bytes | None:
    """Return the message behind its seal; None if the seal was not made with this secret."""
    message = data[_SEAL_SIZE:]
    return message if hmac.compare_digest(seal(message, secret)[:_SEAL_SIZE], data[:_SEAL_SIZE]) else None


def read_event(data: bytes) -> EventRecord:
    """Decode an event record; raises `ValueError` if the bytes are none."""
    if len(data) < _EVENT.size:
        raise ValueError("too short for an event record")
    high, low, attempt = _EVENT.unpack_from(data)
    at = _EVENT.size
    fields: list[bytes | None] = []
    for _ in range(6):
        size = int.from_bytes(data[at : at + 4], "big", signed=True)
        at += 4
        fields.append(None if size < 0 else data[at : at + size])
        at += max(size, 0)
    name, queue, id, worker, result, failure = fields
    return EventRecord(
        (name or b"").decode(), (queue or b"").decode(), (id or b"").decode(), high << 32 | low, attempt,
        worker.decode() if worker else None, result, failure,
    )  # fmt: skip


def encode_event(event: EventRecord) -> bytes:
    """Encode an event record as `emit` in `_shared.lua` does, without the time at its front."""
    worker = None if event.worker is None else event.worker.encode()
    fields = (event.name.encode(), event.queue.encode(), event.id.encode(), worker, event.result, event.error)
    return min(event.attempt, 65535).to_bytes(2, "big") + b"".join(map(_field, fields))


def _field(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def read_end_notice(data: bytes) -> tuple[tuple[str, str], EndNotice | None]:
    """Decode the queue and id of a job that ended, and its end notice; None if the message has only the former.

    Raises `ValueError` if the bytes are no such message.
    """
    if len(data) < _NOTICE.size:
        raise ValueError("too short for the end of a job")
    name, size, code = _NOTICE.unpack_from(data)
    at = _NOTICE.size + name
    queue, id = text(data[_NOTICE.size : at]), text(data[at : at + size])
    state, value = ENDS.get(code), data[at + size :]
    if state is None:
        return (queue, id), None
    completed = state is State.COMPLETED
    result, error = (value, None) if completed else (None, value or None)
    return (queue, id), EndNotice(id, state, result, error)
