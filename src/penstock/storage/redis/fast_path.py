"""Client side of the fast paths of `put.lua` and `settle.lua`: which calls may take them, and their arguments.

Most jobs are plain: an id and a payload, due at once. Most settlements are plain completions. They are encoded as
flat arguments, which need no msgpack, and the scripts write them together. All other calls are encoded by `encode_jobs`
and `encode_settlements`, and the scripts handle them one by one. `RedisStorage(fast=False)` sends everything that way;
tests/storage/test_fast_and_slow.py compares the answers of both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.model.job import NewJob
from penstock.storage.base import Complete, Settlement
from penstock.storage.redis.encoding import fence, pack

__all__ = ["encode_completions", "encode_plain_jobs", "is_plain_completion", "settlement_slices"]

#: A slice of fewer plain completions is not worth a call of its own between two general ones.
MIN_SLICE = 6


def encode_plain_jobs(jobs: Sequence[NewJob], *, fresh: bool) -> list[Any] | None:
    """Encode plain jobs of one queue as flat arguments of `put.lua`; None if `encode_jobs` must encode them.

    The jobs have one waiter or none. Unless `fresh`, so that no job can have their ids, the ids must differ.
    """
    waiter = jobs[0].waiter if jobs else None
    flat: list[Any] = ["fresh" if fresh else "named", waiter or ""]
    for new in jobs:
        if (
            new.run_at is not None or new.group is not None or new.delay is not None or new.update is not None
            or new.bounds or new.headers or new.priority or new.waiter != waiter
            or new.start_by is not None or new.start_within is not None or new.cost != 1
            or new.window is not None or new.flow is not None
        ):  # fmt: skip
            return None
        flat += (new.id, new.payload)
    return flat if fresh or len({new.id for new in jobs}) == len(jobs) else None


def is_plain_completion(s: Settlement) -> bool:
    """Return whether a settlement completes a run, keeps the result, and puts no follow-up jobs."""
    end = s.resolution
    return isinstance(end, Complete) and not end.then and end.ttl != 0


def settlement_slices(settlements: Sequence[Settlement]) -> list[tuple[int, int, bool]]:
    """Cut settlements of one queue, in their order, into slices (start, end, whether all are plain completions).

    A plain slice settles no job twice. The slices are sent as calls of one packet. The order is kept because it decides
    in which order the groups of the runs take their next turn.
    """
    slices: list[tuple[int, int, bool]] = []
    start, ids = 0, set[str]()
    for i, s in enumerate(settlements):
        if is_plain_completion(s) and s.id not in ids:
            ids.add(s.id)
            continue
        _add_slice(slices, start, i, plain=True)
        ids.clear()
        start = i
        if is_plain_completion(s):  # a second settlement of a job
            ids.add(s.id)
        else:
            _add_slice(slices, i, i + 1, plain=False)
            start = i + 1
    _add_slice(slices, start, len(settlements), plain=True)
    return slices


def _add_slice(slices: list[tuple[int, int, bool]], start: int, end: int, *, plain: bool) -> None:
    """Append a slice. A short one of plain completions becomes general, and neighbouring general ones are joined."""
    if start == end:
        return
    plain = plain and (end - start >= MIN_SLICE or not slices)
    if slices and not plain and (not slices[-1][2] or slices[-1][1] - slices[-1][0] < MIN_SLICE):
        slices[-1] = slices[-1][0], end, False
    else:
        slices.append((start, end, plain))


def encode_completions(settlements: Sequence[Settlement]) -> list[Any]:
    """Encode plain completions of different jobs as flat arguments of `settle.lua`.

    Settlements in a row with one token and one ttl share a part; then come the ids and the results.
    """
    parts: list[list[Any]] = []
    flat: list[Any] = ["completed", b""]
    token = ttl = None
    part: list[Any] = []
    for s in settlements:
        end: Any = s.resolution
        if s.token != token or end.ttl != ttl or not part:
            token, ttl = s.token, end.ttl
            part = [fence(s.token), -1 if ttl is None else ttl, 0]
            parts.append(part)
        part[2] += 1
        flat += (s.id, end.result)
    flat[1] = pack(parts)
    return flat
