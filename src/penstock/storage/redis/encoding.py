"""The bytes that go to and come from the scripts. The layouts are described in `_shared.lua`."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import Struct, error
from typing import Any

import msgspec

from penstock.errors import ErrorKind, JobError
from penstock.model.job import Claim, NewJob, Snapshot, State, Update
from penstock.storage.base import (
    CANCEL_MODES,
    Cancel,
    Complete,
    Fail,
    JobPosition,
    Release,
    Retried,
    Settlement,
    Stall,
    WorkerRecord,
)

__all__ = [
    "CORRUPT",
    "ENDS",
    "Blobs",
    "fence",
    "pack",
    "read_claims",
    "read_position",
    "read_snapshot",
    "read_worker",
    "spell_job",
    "spell_jobs",
    "spell_settlement",
    "spell_settlements",
    "text",
]

FORMAT = 1
_HEAD = Struct(">BBiHIHIHIHIHHHHHHHI")
_SHORT_HEAD = Struct(">BBHIHI")
_END = Struct(">BHIHIHIBBH")
_RUN = Struct(">BBHIH")
_TIMES = Struct(">HIHI")
_SETTLED, _SHORT = 4, 8
ENDS = {1: State.COMPLETED, 2: State.FAILED, 3: State.CANCELLED}
_MOVES = {False: 0, True: 1, "if_later": 2, "if_earlier": 3}

#: What is shown of a job whose record cannot be read.
CORRUPT = JobError("CorruptRecord", "the stored record cannot be read; its bytes are kept", ErrorKind.PERMANENT)

_encode = msgspec.msgpack.Encoder().encode


def text(data: bytes) -> str:
    """A name as it is stored; whoever can write to the storage may have written anything."""
    return data.decode("utf-8", "replace")


def pack(value: object) -> bytes:
    """Any arguments of a script as msgpack."""
    return _encode(value)


def fence(token: str) -> str:
    """A token as the 16 characters that records hold: itself, if it is one of `new_token`."""
    if len(token) == 16 and token.isascii():
        return token
    return urlsafe_b64encode(blake2b(token.encode(), digest_size=12).digest()).decode()


def _update_code(update: Update | None) -> int:
    if update is None:
        return 0
    return 32 + update.payload + 2 * _MOVES[update.run_at] + 8 * update.resets + 16 * update.limits


class Blobs:
    """Bytes that go beside a script's msgpack arguments (the server's msgpack knows no bytes)."""

    def __init__(self) -> None:
        self.all: list[bytes] = []

    def add(self, data: bytes) -> int:
        """The number by which the script finds the bytes; 0 stands for none."""
        if not data:
            return 0
        self.all.append(data)
        return len(self.all)


def _or_false(value: object) -> object:
    return False if value is None else value


def spell_job(new: NewJob, blobs: Blobs, *, fresh: bool | None = None) -> list[Any]:
    """An asked-for job as `read_entry` reads it: trailing defaults are left off."""
    code = (64 if (new.fresh if fresh is None else fresh) else 0) + _update_code(new.update)
    payload = blobs.add(new.payload)
    if new.run_at is None and new.group is None and not (new.limits or new.headers or new.priority or new.waiter):
        return [new.id, code, payload] if new.delay is None else [new.id, code, payload, 0, 0, False, new.delay]
    return [
        new.id, code, payload, blobs.add(new.limits), blobs.add(new.headers), _or_false(new.run_at),
        _or_false(new.delay), new.priority, _or_false(new.group), _or_false(new.waiter),
    ]  # fmt: skip


def spell_jobs(jobs: Sequence[NewJob], *, fresh: bool) -> list[Any]:
    """Asked-for jobs as `put.lua` reads them; `fresh` says that nobody can have their ids."""
    waiter = jobs[0].waiter if jobs else None
    flat: list[Any] = ["fresh" if fresh else "named", waiter or ""]
    for new in jobs:
        if (
            new.run_at is not None or new.group is not None or new.delay is not None or new.update is not None
            or new.limits or new.headers or new.priority or new.waiter != waiter
        ):  # fmt: skip
            break
        flat += (new.id, new.payload)
    else:
        if fresh or len({new.id for new in jobs}) == len(jobs):
            return flat
    blobs = Blobs()
    spelled = pack([spell_job(new, blobs, fresh=fresh) for new in jobs])
    return ["any", spelled, *blobs.all]


def spell_settlements(settlements: Sequence[Settlement], prefix: Callable[[str], str]) -> tuple[list[Any], set[str]]:
    """Settlements of one queue as `settle.lua` reads them, and the queues into which they put jobs."""
    parts: list[list[Any]] = []
    flat: list[Any] = ["completed", b""]
    token = ttl = None
    last: list[Any] = []
    for s in settlements:
        end = s.resolution
        if not isinstance(end, Complete) or end.then or end.ttl == 0:
            break
        if s.token != token or end.ttl != ttl:
            token, ttl = s.token, end.ttl
            parts.append([fence(token), -1 if ttl is None else ttl, 0])
            last = parts[-1]
        last[2] += 1
        flat += (s.id, end.result)
    else:
        if len({s.id for s in settlements}) == len(settlements):
            flat[1] = pack(parts)
            return flat, set()
    blobs = Blobs()
    spelled = pack([spell_settlement(s, prefix, blobs) for s in settlements])
    return ["any", spelled, *blobs.all], {new.queue for s in settlements for new in getattr(s.resolution, "then", ())}


def spell_settlement(s: Settlement, prefix: Callable[[str], str], blobs: Blobs) -> list[Any]:
    """A settlement as `settle.lua` reads it."""
    end = s.resolution
    then = [[prefix(job.queue), job.queue, spell_job(job, blobs)] for job in getattr(end, "then", ())] or False
    match end:
        case Complete():
            more = ["c", -1 if end.ttl is None else end.ttl, blobs.add(end.result), then]
        case Fail():
            more = ["f", -1 if end.ttl is None else end.ttl, blobs.add(end.error), end.count is not None, then]
        case Retried():
            at = False if end.at is None else end.at
            more = ["r", at, end.delay, end.count or "", end.position == "due", end.solo, blobs.add(end.error)]
        case Cancel():
            more = ["x", -1 if end.ttl is None else end.ttl]
        case Release():
            more = ["l"]
        case Stall():
            more = ["s"]
    return [s.id, fence(s.token), *more]


def read_claims(
    queue: str, token: str, ids: list[bytes], records: list[bytes], numbers: list[int] | None, claims: list[Claim]
) -> list[str]:
    """Append the claims behind records, each a batch of its own if they have no numbers; gives the ids of bad ones."""
    unpack, size, bad = _HEAD.unpack_from, _HEAD.size, list[str]()
    unpack_short, short_size = _SHORT_HEAD.unpack_from, _SHORT_HEAD.size
    for i, raw in enumerate(ids):
        try:
            id, record = raw.decode(), records[i]
        except UnicodeDecodeError:  # nobody of ours wrote it: it is left to its lease, and never run
            continue
        group, limits, headers = None, b"", b""
        try:
            if record[1] & _SHORT:
                _, _, high, low, _, _ = unpack_short(record)
                claims.append(
                    Claim(
                        queue,
                        id,
                        token,
                        record[short_size:],
                        i if numbers is None else numbers[i],
                        None,
                        0,
                        b"",
                        b"",
                        high << 32 | low,
                        high << 32 | low,
                    )
                )
                continue
            head = unpack(record)
            if head[1] & _SETTLED or head[15] or head[16] or head[17] or head[18]:
                group, limits, headers, _, payload = _sections(record, head)
            else:
                payload = record[size:]
        except (error, ValueError, IndexError):
            bad.append(id)
            continue
        batch = i if numbers is None else numbers[i]
        claim = Claim(
            queue, id, token, payload, batch, group, head[2], headers, limits, head[9] << 32 | head[10],
            head[7] << 32 | head[8], head[11] + 1, head[12], head[13], head[14],
        )  # fmt: skip
        claims.append(claim)
    return bad


def _long(record: bytes) -> bytes:
    """A record with its head in full."""
    if len(record) < 2 or not record[1] & _SHORT:
        return record
    format, flags, *time, high, low = _SHORT_HEAD.unpack_from(record)
    return _HEAD.pack(format, flags - _SHORT, 0, *time, high, low, *time, *time, *[0] * 8) + record[_SHORT_HEAD.size :]


def _sections(record: bytes, head: tuple[Any, ...]) -> tuple[str | None, bytes, bytes, bytes, bytes]:
    """Group, limits, headers, error and payload."""
    glen, llen, hlen, elen = head[15:19]
    at = _HEAD.size
    if not (glen or llen or hlen or elen or head[1] & _SETTLED):
        return None, b"", b"", b"", record[at:]
    end = at + glen + llen + hlen + elen + (17 if head[1] & _SETTLED else 0)
    if not head[0] or len(record) < end:
        raise ValueError("a record of no format, or too short for its sections")
    group = record[at : at + glen].decode() if glen else None
    at += glen
    limits = record[at : at + llen]
    at += llen
    headers = record[at : at + hlen]
    at += hlen
    return group, limits, headers, record[at : at + elen], record[end:]


def _newer_sections(record: bytes, head: tuple[Any, ...]) -> tuple[str | None, bytes, bytes, bytes, bytes]:
    """The same of a record whose format is not known here: nothing but the group."""
    glen = head[15]
    if len(record) < _HEAD.size + glen:
        raise ValueError("a record that is too short for its group")
    return record[_HEAD.size : _HEAD.size + glen].decode() or None, b"", b"", b"", b""


def read_snapshot(
    queue: str, id: str, now: int, record: bytes, run: bytes | None, worker: bytes | None, end: bytes | None,
    waiting: bytes | None, format: int = FORMAT,
) -> Snapshot | None:  # fmt: skip
    """Everything known about a job, or None when it has been kept for long enough.

    Of a record in a newer format than `format` it is what its head and its group say.
    """
    ended = _or_corrupt(end) if end else {}
    if ended and ended["expires"] is not None and ended["expires"] <= now:
        return None
    counted = ended.pop("counted", 1 if run else 0)
    try:
        whole = _long(record)
        head = _HEAD.unpack_from(whole)
        sections = _newer_sections if head[0] > format else _sections
        group, limits, headers, last_error, payload = sections(whole, head)
    except (error, ValueError):
        shown = ended or {"state": State.FAILED}
        shown["error"] = CORRUPT.encode()
        return Snapshot(queue=queue, id=id, payload=record, **shown)
    if ended:
        known: dict[str, Any] = ended
    elif run:
        known = {"state": State.RUNNING, "worker": text(worker) if worker else None, **_read_run(run)}
    else:
        known = {"state": State(waiting.decode()) if waiting else State.QUEUED}
    if not ended:
        known["error"] = last_error or None
    return Snapshot(
        queue=queue, id=id, payload=payload, group=group, priority=head[2], headers=headers, limits=limits,
        created=head[9] << 32 | head[10], run_at=head[7] << 32 | head[8], attempts=head[11] + (counted & 1),
        retries=head[12], stalls=head[13] + (counted >> 2 & 1), timeouts=head[14] + (counted >> 1 & 1),
        format=head[0] if head[0] > format else None, **known,
    )  # fmt: skip


def read_position(
    queue: str, now: int, paused: int | None, job: Any, head: JobPosition | None, format: int
) -> JobPosition | None:
    """Where a job stands, as `why.lua` tells it; None when it has been kept for long enough."""
    id, record, run, worker, end, state, lease, successor, ahead = job
    found = read_snapshot(queue, text(id), now, record, run, worker, end, state, format)
    if found is None:
        return None
    return JobPosition(
        id=found.id, state=found.state, at=now, run_at=found.run_at, worker=found.worker, group=found.group,
        lease=None if lease is None else int(float(lease)), finished=found.finished, successor=bool(successor),
        paused=paused, format=found.format, known=None if found.format is None else format,
        ahead=None if head else ahead, head=head,
    )  # fmt: skip


def _or_corrupt(end: bytes) -> dict[str, Any]:
    """How a job ended; if that cannot be read, it has ended all the same."""
    try:
        return _read_end(end)
    except (error, KeyError):
        return {"state": State.FAILED, "expires": None, "counted": 0, "error": CORRUPT.encode()}


def _read_end(end: bytes) -> dict[str, Any]:
    state, f1, f2, e1, e2, _, _, counted, tlen, wlen = _END.unpack_from(end)
    worker_at = _END.size + tlen
    worker = text(end[worker_at : worker_at + wlen]) or None
    value = end[worker_at + wlen :]
    expires = e1 << 32 | e2
    return {
        "state": ENDS[state],
        "finished": f1 << 32 | f2,
        "expires": expires or None,
        "worker": worker,
        "counted": counted,
        "result": value if state == 1 else None,
        "error": value if state == 2 else None,
    }


def _read_run(run: bytes) -> dict[str, Any]:
    if len(run) <= 16:
        return {}
    try:
        cancel, _, _, _, glen = _RUN.unpack_from(run, 16)
        at = 16 + _RUN.size + glen
        progress = run[at + 1 :] if run[at] else None
        return {"cancel": CANCEL_MODES[cancel] if cancel else None, "progress": progress}
    except (error, IndexError):
        return {}


def read_result(end: bytes) -> bytes:
    """The value in an end record."""
    return _read_end(end)["result"] or b""


def read_worker(id: bytes, record: bytes) -> WorkerRecord | None:
    """A worker's presence, if it can be read."""
    if len(record) < _TIMES.size:
        return None
    s1, s2, u1, u2 = _TIMES.unpack_from(record)
    return WorkerRecord(text(id), s1 << 32 | s2, u1 << 32 | u2, record[_TIMES.size :])
