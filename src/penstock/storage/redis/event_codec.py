"""What the scripts publish: the lines of the event feed, and what those are told who wait for a job."""

from __future__ import annotations

from struct import Struct

from penstock.model.job import State
from penstock.storage.base import EndNotice, EventRecord
from penstock.storage.redis.encoding import ENDS, text

__all__ = ["read_note", "read_told", "spell_note"]

_NOTE = Struct(">HIH")
_TOLD = Struct(">HHB")


def read_note(data: bytes) -> EventRecord:
    """One line of the event feed; a `ValueError` if it is none."""
    if len(data) < _NOTE.size:
        raise ValueError("too short for a line of the feed")
    high, low, attempt = _NOTE.unpack_from(data)
    at = _NOTE.size
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


def spell_note(note: EventRecord) -> bytes:
    """A line of the event feed as `note` in `_shared.lua` writes it, but for the time at its front."""
    worker = None if note.worker is None else note.worker.encode()
    fields = (note.name.encode(), note.queue.encode(), note.id.encode(), worker, note.result, note.error)
    return min(note.attempt, 65535).to_bytes(2, "big") + b"".join(map(_field, fields))


def _field(data: bytes | None) -> bytes:
    return b"\xff\xff\xff\xff" if data is None else len(data).to_bytes(4, "big") + data


def read_told(data: bytes) -> tuple[tuple[str, str], EndNotice | None]:
    """Of which queue and id a job has ended, and how if that is said; a `ValueError` if it is no such word."""
    if len(data) < _TOLD.size:
        raise ValueError("too short for the end of a job")
    name, size, code = _TOLD.unpack_from(data)
    at = _TOLD.size + name
    queue, id = text(data[_TOLD.size : at]), text(data[at : at + size])
    state, value = ENDS.get(code), data[at + size :]
    if state is None:
        return (queue, id), None
    result, error = value if state is State.COMPLETED else None, value if state is State.FAILED else None
    return (queue, id), EndNotice(id, state, result, error)
