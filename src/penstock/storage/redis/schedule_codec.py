"""Encoding of schedules and firings for the scripts, and decoding of schedule records: see `_schedules.lua`."""

from __future__ import annotations

from struct import Struct
from typing import Any

from msgspec.structs import replace

from penstock.storage.redis.encoding import Blobs, encode_job
from penstock.storage.scheduling import Fired, Firing, ScheduleRecord

__all__ = ["encode_fields", "encode_firing", "read_fired", "read_schedule", "size_of"]

_HEAD = Struct(">B" + "HI" * 9 + "H")


def encode_fields(record: ScheduleRecord) -> list[Any]:
    """Encode a schedule for `set_schedule.lua`, without its name and spec."""
    return [
        record.cursor, _or_false(record.next), _or_false(record.last_id), _or_false(record.last_at), record.fired,
        record.skipped, record.missed, record.dropped, _or_false(record.expires),
    ]  # fmt: skip


def encode_firing(firing: Firing, blobs: Blobs) -> list[Any]:
    """Encode a firing for `read_firing` in `_firing.lua`."""
    ttl = -1 if firing.cancel_ttl is None else firing.cancel_ttl
    ticks = [[tick.at, encode_job(replace(tick.job, update=None, waiter=None), blobs)] for tick in firing.ticks]
    return [
        firing.version, firing.overlap, firing.missed, firing.cursor, _or_false(firing.next), firing.manual,
        firing.room, ttl, _or_false(firing.expires), ticks,
    ]  # fmt: skip


def size_of(firing: Firing) -> int:
    """Return about how many bytes the jobs of a firing have."""
    return sum(len(tick.job.payload) + len(tick.job.headers) + len(tick.job.bounds) for tick in firing.ticks)


def read_fired(firing: Firing, answer: list[Any]) -> Fired:
    """Read the answer of `fire.lua` to one firing."""
    version, stale, fired, skipped, dropped, known = answer[:6]
    placed: list[int] = answer[6]
    ids = tuple(firing.ticks[place - 1].job.id for place in placed)
    return Fired(version, bool(stale), fired, skipped, dropped, known, ids)


def read_schedule(queue: str, name: bytes, record: bytes) -> ScheduleRecord | None:
    """Read a schedule; None if its name or last id is no text. The scripts have checked the rest."""
    _, *halves, size = _HEAD.unpack_from(record)
    numbers = [halves[at] << 32 | halves[at + 1] for at in range(0, len(halves), 2)]
    version, cursor, next_up, last_up, expires_up, fired, skipped, missed, dropped = numbers
    at = _HEAD.size
    try:
        last_id, name_text = record[at : at + size].decode(), name.decode()
    except UnicodeDecodeError:
        return None
    return ScheduleRecord(
        queue=queue, name=name_text, spec=record[at + size :], cursor=cursor, version=version, next=_down(next_up),
        last_id=last_id or None, last_at=_down(last_up), fired=fired, skipped=skipped, missed=missed, dropped=dropped,
        expires=_down(expires_up),
    )  # fmt: skip


def _or_false(value: object) -> object:
    return False if value is None else value


def _down(number: int) -> int | None:
    """Return a stored number, which is one larger; None for 0."""
    return number - 1 if number else None
