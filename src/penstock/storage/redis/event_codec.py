"""Encoding of published messages: events, notices of the ends of jobs, and the seal before each."""

from __future__ import annotations

import contextlib
import hmac
from hashlib import sha1
from struct import Struct

import msgspec

from penstock.errors import UNREADABLE
from penstock.model.job import State
from penstock.storage.base import EndNotice, EventRecord
from penstock.storage.redis.encoding import ENDS, text

__all__ = ["encode_announcement", "read_end_notice", "read_events", "seal", "unseal"]

#: The head of a block of events: name, queue, time, worker, attempts, ids, lengths of results and of errors.
_Head = tuple[str, str, int, str | bool, int | list[int], list[str], list[int] | bool, list[int] | bool]
_decode_head = msgspec.msgpack.Decoder(_Head).decode
_BLOCK = Struct(">II")
_NOTICE = Struct(">HHB")


#: The length of a seal in bytes.
_SEAL_SIZE = 40


def seal(message: bytes, secret: str) -> bytes:
    """Return a message with its seal in front, as `seal` in `_base.lua` does.

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


def read_events(message: bytes) -> list[EventRecord]:
    """Decode the events of a message; `_events.lua` describes it. What cannot be decoded is left out."""
    events: list[EventRecord] = []
    at = 0
    while at + _BLOCK.size <= len(message):
        head_size, size = _BLOCK.unpack_from(message, at)
        head_at = at + _BLOCK.size
        at = head_at + head_size + size
        if at <= len(message):
            with contextlib.suppress(*UNREADABLE, ValueError):
                head = _decode_head(message[head_at : head_at + head_size])
                events += _block_events(head, message[head_at + head_size : at])
    return events


def _block_events(head: _Head, values: bytes) -> list[EventRecord]:
    name, queue, time, worker, attempts, ids, results, errors = head
    by = worker if isinstance(worker, str) and worker else None
    if isinstance(attempts, int):
        attempts = [attempts] * len(ids)
    if isinstance(results, bool) and isinstance(errors, bool):
        return [EventRecord(name, queue, id, time, attempt, by) for id, attempt in zip(ids, attempts, strict=True)]
    events: list[EventRecord] = []
    at, absent = 0, [-1] * len(ids)
    results, errors = (absent if isinstance(sizes, bool) else sizes for sizes in (results, errors))
    for id, attempt, result, error in zip(ids, attempts, results, errors, strict=True):
        middle = at + max(result, 0)
        end = middle + max(error, 0)
        found = None if result < 0 else values[at:middle]
        failure = None if error < 0 else values[middle:end]
        events.append(EventRecord(name, queue, id, time, attempt, by, found, failure))
        at = end
    return events


def encode_announcement(event: EventRecord) -> list[str | int | bytes]:
    """Encode an event as the arguments of `announce.lua`."""
    worker = None if event.worker is None else event.worker.encode()
    given = (b"" if value is None else b"=" + value for value in (worker, event.result, event.error))
    return [event.name, event.queue, event.id, event.attempt, *given]


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
