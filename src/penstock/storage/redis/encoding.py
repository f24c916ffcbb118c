"""Encoding of script arguments, and decoding of records. The record layouts are described in `_base.lua`."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import Struct, error
from typing import Any

import msgspec

from penstock.errors import ErrorKind, JobError
from penstock.model.clock import MAX_MS
from penstock.model.job import Claim, NewJob, Snapshot, State, Update
from penstock.storage.base import (
    CANCEL_MODES,
    Cancel,
    Complete,
    Fail,
    Release,
    Retried,
    Settlement,
    Stall,
    Suspend,
    WorkerRecord,
)
from penstock.storage.redis.blobs import Blobs, text
from penstock.storage.redis.flow_codec import encode_part, encode_suspend, read_claim_flow, read_flow_snapshot

__all__ = [
    "CORRUPT",
    "ENDS",
    "Blobs",
    "encode_claim",
    "encode_job",
    "encode_jobs",
    "encode_settlement",
    "encode_settlements",
    "fence",
    "pack",
    "read_claim",
    "read_claims",
    "read_number",
    "read_snapshot",
    "read_worker",
    "text",
]

FORMAT = 1
_HEAD = Struct(">BBiHIHIHIHIHHHHHHHI")
_SHORT_HEAD = Struct(">BBHIHI")
_END = Struct(">BHIHIHIBBH")
_RUN = Struct(">BBHIH")
_TIMES = Struct(">HIHI")
_SETTLED, _SHORT, _EXPIRES, _COST, _WINDOW = 4, 8, 16, 32, 64
_UPDATE, _FRESH = 128, 256
ENDS = {1: State.COMPLETED, 2: State.FAILED, 3: State.CANCELLED}
_MOVES = {False: 0, True: 1, "if_later": 2, "if_earlier": 3}

#: The error shown for a job whose record cannot be read.
CORRUPT = JobError("CorruptRecord", "the stored record cannot be read; its bytes are kept", ErrorKind.PERMANENT)

_encode = msgspec.msgpack.Encoder().encode


def read_number(data: bytes) -> int:
    """Read a stored number; 0 if it is damaged."""
    return int(data) if data.isdigit() and len(data) < 16 else 0


def pack(value: object) -> bytes:
    """Encode arguments of a script as msgpack."""
    return _encode(value)


def fence(token: str) -> str:
    """Return a token as the 16 characters that records hold: unchanged if `new_token` made it, else a digest."""
    if len(token) == 16 and token.isascii():
        return token
    return urlsafe_b64encode(blake2b(token.encode(), digest_size=12).digest()).decode()


def _update_code(update: Update, group: str | None) -> int:
    """Encode the flags of an update as in `_transitions.lua`."""
    code = update.payload + 2 * _MOVES[update.run_at] + 8 * update.resets + 16 * update.bounds
    return _UPDATE + code + 32 * update.priority + 64 * (update.group and group is not None)


def _or_false(value: object) -> object:
    return False if value is None else value


def encode_job(new: NewJob, blobs: Blobs, *, fresh: bool | None = None) -> list[Any]:
    """Encode a job for `read_entry` in `_transitions.lua`; trailing defaults are left off."""
    code = _FRESH if (new.fresh if fresh is None else fresh) else 0
    if new.update is not None:
        code += _update_code(new.update, new.group)
    payload = blobs.add(new.payload)
    rest = _encode_rest(new, blobs)
    if (
        new.run_at is None
        and new.group is None
        and not (new.bounds or new.headers or new.priority or new.waiter or rest)
    ):
        return [new.id, code, payload] if new.delay is None else [new.id, code, payload, 0, 0, False, new.delay]
    return [
        new.id, code, payload, blobs.add(new.bounds), blobs.add(new.headers), _or_false(new.run_at),
        _or_false(new.delay), new.priority, _or_false(new.group), _or_false(new.waiter), *rest,
    ]  # fmt: skip


def _encode_rest(new: NewJob, blobs: Blobs) -> list[Any]:
    """Encode the fields that few jobs have; trailing defaults are left off."""
    if new.flow is not None:
        rest = [new.start_by, new.start_within, new.cost, new.window, new.max_wait, encode_part(new.flow, blobs)]
    elif new.window is not None or new.max_wait is not None:
        rest = [new.start_by, new.start_within, new.cost, new.window, new.max_wait]
    elif new.cost != 1:
        rest = [new.start_by, new.start_within, new.cost]
    elif new.start_by is not None or new.start_within is not None:
        rest = [new.start_by, new.start_within]
    else:
        return []
    return [_or_false(value) for value in rest]


def encode_bounded_jobs(jobs: Sequence[NewJob], max_queued: int) -> list[Any]:
    """Encode jobs of one queue for `put.lua`, which refuses them if more than `max_queued` jobs would wait."""
    blobs = Blobs()
    encoded = pack([encode_job(new, blobs) for new in jobs])
    return ["bounded", encoded, *blobs.all, max_queued]


def encode_jobs(jobs: Sequence[NewJob], *, fresh: bool) -> list[Any]:
    """Encode jobs of one queue as the arguments of `put.lua`; `fresh` means that no job can have their ids."""
    blobs = Blobs()
    encoded = pack([encode_job(new, blobs, fresh=fresh) for new in jobs])
    return ["any", encoded, *blobs.all]


def encode_settlements(settlements: Sequence[Settlement], prefix: Callable[[str], str]) -> list[Any]:
    """Encode settlements of one queue as the arguments of `settle.lua`."""
    blobs = Blobs()
    encoded = pack([encode_settlement(s, prefix, blobs) for s in settlements])
    return ["any", encoded, *blobs.all]


def encode_settlement(s: Settlement, prefix: Callable[[str], str], blobs: Blobs) -> list[Any]:
    """Encode a settlement for `settle_one` in `settle.lua`."""
    end = s.resolution
    follow = end.puts if isinstance(end, Suspend) else getattr(end, "then", ())
    more: list[Any]
    then = [[prefix(job.queue), job.queue, encode_job(job, blobs)] for job in follow] or False
    match end:
        case Complete():
            more = ["c", -1 if end.ttl is None else end.ttl, blobs.add(end.result), then]
        case Fail():
            more = ["f", -1 if end.ttl is None else end.ttl, blobs.add(end.error), end.count is not None, then, end.ran]
            if end.brief or end.culprits:
                more.append(blobs.add(end.brief))
            if end.culprits:
                more += [[*end.culprits]]
        case Retried():
            at = False if end.at is None else end.at
            more = ["r", at, end.delay, end.count or "", end.position == "due", end.solo, blobs.add(end.error)]
            if end.pause is not None or end.brief:
                more.append(end.pause or False)
            if end.brief:
                more.append(blobs.add(end.brief))
        case Cancel():
            more = ["x", -1 if end.ttl is None else end.ttl, end.ran]
        case Release():
            more = ["l"]
        case Stall():
            more = ["s"]
        case Suspend():
            more = encode_suspend(end, then or [], blobs)
    return [s.id, fence(s.token), *more]


def read_claims(
    queue: str, token: str, ids: list[bytes], records: list[bytes], numbers: list[int] | None, claims: list[Claim],
    parts: Sequence[Any] = (),
) -> list[str]:  # fmt: skip
    """Append the claims of records to `claims`; return the ids of records that cannot be read.

    `numbers` are the batches of the claims; None makes each claim a batch of its own. `parts` are those in flows, with
    their places.
    """
    flows = {place - 1: read_claim_flow(part) for place, part in parts} if parts else {}
    unpack, size, bad = _HEAD.unpack_from, _HEAD.size, list[str]()
    unpack_short, short_size = _SHORT_HEAD.unpack_from, _SHORT_HEAD.size
    for i, raw in enumerate(ids):
        try:
            id, record = raw.decode(), records[i]
        except UnicodeDecodeError:  # Penstock writes no such id: the run is left to its lease
            continue
        group, bounds, headers = None, b"", b""
        try:
            if record[1] & _SHORT:
                _, _, high, low, _, _ = unpack_short(record)
                time, batch = high << 32 | low, i if numbers is None else numbers[i]
                claims.append(Claim(queue, id, token, record[short_size:], batch, None, 0, b"", b"", time, time))
                continue
            head = unpack(record)
            if head[1] & (_SETTLED | _EXPIRES | _COST | _WINDOW) or head[15] or head[16] or head[17] or head[18]:
                group, bounds, headers, _, payload = _sections(record, head)
            else:
                payload = record[size:]
        except (error, ValueError, IndexError):
            bad.append(id)
            continue
        batch = i if numbers is None else numbers[i]
        claim = Claim(
            queue, id, token, payload, batch, group, head[2], headers, bounds, head[9] << 32 | head[10],
            head[7] << 32 | head[8], head[11] + 1, head[12], head[13], head[14], flows.get(i) if flows else None,
        )  # fmt: skip
        claims.append(claim)
    return bad


def _long(record: bytes) -> bytes:
    """Return a record with its short head, if it has one, replaced by the full head."""
    if len(record) < 2 or not record[1] & _SHORT:
        return record
    format, flags, *time, high, low = _SHORT_HEAD.unpack_from(record)
    return _HEAD.pack(format, flags - _SHORT, 0, *time, high, low, *time, *time, *[0] * 8) + record[_SHORT_HEAD.size :]


def _sections(record: bytes, head: tuple[Any, ...]) -> tuple[str | None, bytes, bytes, bytes, bytes]:
    """Return group, bounds, headers, error and payload of a record; raises `ValueError` if it is too short."""
    glen, llen, hlen, elen = head[15:19]
    at = _group_at(head)
    if not (glen or llen or hlen or elen or head[1] & _SETTLED):
        return None, b"", b"", b"", record[at:]
    end = at + glen + llen + hlen + elen + (17 if head[1] & _SETTLED else 0)
    if not head[0] or len(record) < end:
        raise ValueError("a record of no format, or too short for its sections")
    group = record[at : at + glen].decode() if glen else None
    at += glen
    bounds = record[at : at + llen]
    at += llen
    headers = record[at : at + hlen]
    at += hlen
    return group, bounds, headers, record[at : at + elen], record[end:]


def _newer_sections(record: bytes, head: tuple[Any, ...]) -> tuple[str | None, bytes, bytes, bytes, bytes]:
    """Return the same of a record in a newer format: only the group is known, the rest is empty."""
    glen, at = head[15], _group_at(head)
    if len(record) < at + glen:
        raise ValueError("a record that is too short for its group")
    return record[at : at + glen].decode() or None, b"", b"", b"", b""


def _group_at(head: tuple[Any, ...]) -> int:
    """Return where the group of a record begins: behind the head, the cost, the start-by time and the window."""
    return _window_at(head) + (12 if head[1] & _WINDOW else 0)


def _window_at(head: tuple[Any, ...]) -> int:
    return _start_by_at(head) + (6 if head[1] & _EXPIRES else 0)


def _start_by_at(head: tuple[Any, ...]) -> int:
    return _HEAD.size + (4 if head[1] & _COST else 0)


def _cost(record: bytes, head: tuple[Any, ...]) -> int:
    return max(1, int.from_bytes(record[_HEAD.size : _HEAD.size + 4], "big")) if head[1] & _COST else 1


def _start_by(record: bytes, head: tuple[Any, ...]) -> int | None:
    at = _start_by_at(head)
    return int.from_bytes(record[at : at + 6], "big") if head[1] & _EXPIRES else None


def _window(record: bytes, head: tuple[Any, ...]) -> int | None:
    at = _window_at(head)
    return int.from_bytes(record[at : at + 6], "big") if head[1] & _WINDOW else None


def read_snapshot(
    queue: str, id: str, now: int, record: bytes, run: bytes | None, worker: bytes | None, end: bytes | None,
    waiting: bytes | None, part: Any = None, format: int = FORMAT,
) -> Snapshot | None:  # fmt: skip
    """Read all records of one job; None if its retention is over.

    Of a record in a newer format than `format` only the head and the group are read.
    """
    ended = _or_corrupt(end) if end else {}
    if ended and ended["expires"] is not None and ended["expires"] <= now:
        return None
    counted = ended.pop("counted", 1 if run else 0)
    try:
        whole = _long(record)
        head = _HEAD.unpack_from(whole)
        sections = _newer_sections if head[0] > format else _sections
        group, bounds, headers, last_error, payload = sections(whole, head)
    except (error, ValueError):
        shown = ended or {"state": State.FAILED}
        shown["error"] = CORRUPT.encode()
        return Snapshot(queue=queue, id=id, payload=record, **shown)
    if ended:
        known: dict[str, Any] = ended
    elif run:
        known = {"state": State.RUNNING, **read_claim(worker or b""), **_read_run(run)}
    else:
        known = {"state": State(waiting.decode()) if waiting else State.QUEUED}
    if not ended:
        known["error"] = last_error or None
    if not ended and not run:
        known["start_by"] = _start_by(whole, head)
    return Snapshot(
        queue=queue, id=id, payload=payload, group=group, priority=head[2], headers=headers, bounds=bounds,
        created=head[9] << 32 | head[10], run_at=head[7] << 32 | head[8], attempts=head[11] + (counted & 1),
        retries=head[12], stalls=head[13] + (counted >> 2 & 1), timeouts=head[14] + (counted >> 1 & 1),
        cost=_cost(whole, head), window=_window(whole, head),
        format=head[0] if head[0] > format else None, flow=None if part is None else read_flow_snapshot(part), **known,
    )  # fmt: skip


def _or_corrupt(end: bytes) -> dict[str, Any]:
    """Read an end record; one that cannot be read is shown as a failed job with a `CorruptRecord` error."""
    try:
        return _read_end(end)
    except (error, KeyError):
        return {"state": State.FAILED, "expires": None, "counted": 0, "error": CORRUPT.encode()}


def _read_end(end: bytes) -> dict[str, Any]:
    state, f1, f2, e1, e2, _, _, counted, tlen, wlen = _END.unpack_from(end)
    worker_at = _END.size + tlen
    claim = read_claim(end[worker_at : worker_at + wlen])
    value = end[worker_at + wlen :]
    expires = e1 << 32 | e2
    return {
        "state": ENDS[state],
        "finished": f1 << 32 | f2,
        "expires": expires or None,
        **claim,
        "counted": counted,
        "result": value if state == 1 else None,
        "error": value if state == 2 else (value or None) if state == 3 else None,
    }


def read_claim(claim: bytes) -> dict[str, Any]:
    """Read time and worker of a claim; the worker is None if it is empty, the time if it is 0 or damaged."""
    started = int.from_bytes(claim[:6], "big")
    return {"worker": text(claim[6:]) or None, "started": started if 0 < started <= MAX_MS else None}


def encode_claim(started: int | None, worker: str | None) -> bytes:
    """Encode time and worker of a claim; nothing if both are unknown."""
    return (started or 0).to_bytes(6, "big") + (worker or "").encode() if started or worker else b""


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


def read_worker(id: bytes, record: bytes) -> WorkerRecord | None:
    """Read the record of a worker; None if it cannot be read."""
    if len(record) < _TIMES.size:
        return None
    s1, s2, u1, u2 = _TIMES.unpack_from(record)
    return WorkerRecord(text(id), s1 << 32 | s2, u1 << 32 | u2, record[_TIMES.size :])
