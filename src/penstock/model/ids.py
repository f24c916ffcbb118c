"""Ids of jobs, tokens of claims, and the rules for names of queues."""

from __future__ import annotations

import hashlib
import os
from base64 import b64encode, urlsafe_b64encode
from binascii import b2a_base64

from penstock.model.source import source

__all__ = [
    "MAX_NAME_BYTES",
    "check_name",
    "drop_unused",
    "fail_queue_of",
    "family_of",
    "is_fail_queue",
    "new_id",
    "new_ids",
    "new_token",
]


MAX_NAME_BYTES = 512
FAIL_SUFFIX = "/failures"
LONGEST_WITH_SUFFIX = MAX_NAME_BYTES - len(FAIL_SUFFIX)

#: From base64 to the letters of URL-safe base64, assigned so that texts sort as the bytes they encode.
_SORTABLE = bytes.maketrans(
    b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/",
    b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz",
)
#: Added to the time in an id, which would begin with "-" without it.
_FIRST_BIT = 1 << 47


def family_of(queue: str) -> str:
    """Return the family of a queue: its name up to the first `/`. Transitions are atomic inside a family.

    A name too long to carry the suffix of its fail queue is in the family of that queue instead.
    """
    if len(queue) > LONGEST_WITH_SUFFIX // 4 and fail_queue_of(queue) != queue + FAIL_SUFFIX:
        return fail_queue_of(queue).partition("/")[0]
    return queue.partition("/")[0]


def fail_queue_of(queue: str) -> str:
    """Return the queue of a queue's fail jobs; a name too long for the suffix is replaced by its digest."""
    if len(queue.encode()) <= LONGEST_WITH_SUFFIX:
        return queue + FAIL_SUFFIX
    return hashlib.sha256(queue.encode()).hexdigest() + FAIL_SUFFIX


def is_fail_queue(queue: str) -> bool:
    """Return whether a queue is that of fail jobs, by its name: the limit of its family does not hold for it."""
    return queue.endswith(FAIL_SUFFIX)


def new_id() -> str:
    """Return a new job id of 20 characters: the time in milliseconds and 72 random bits."""
    try:
        return _stamp() + _unused.pop()
    except IndexError:
        _unused.extend(_random(64))
        return new_id()


def new_ids(count: int) -> list[str]:
    """Return `count` new job ids, made with one system call.

    They ascend, as do ids made later, so an index of them grows at its end, where one page takes about a
    hundred; unsorted ids would touch a page each.
    """
    stamp = _stamp()
    return [stamp + end for end in sorted(_random(count))]


def _stamp() -> str:
    """Return the first 8 characters of an id: the time."""
    now = (_FIRST_BIT | int(source.wall() * 1000)).to_bytes(6, "big")
    return b2a_base64(now, newline=False).translate(_SORTABLE).decode()


def _random(count: int) -> list[str]:
    """Return the last 12 characters of `count` ids: the random part."""
    text = b64encode(source.bytes(9 * count)).translate(_SORTABLE).decode()
    return [text[at : at + 12] for at in range(0, 12 * count, 12)]


#: Random parts of ids, made 64 at a time.
_unused: list[str] = []


def drop_unused() -> None:
    """Forget the random parts made so far: a forked child, or a run on another source, would repeat them."""
    _unused.clear()


os.register_at_fork(after_in_child=drop_unused)


def new_token() -> str:
    """Return a new claim token: 16 characters, 96 random bits."""
    return urlsafe_b64encode(source.bytes(12)).decode()


def check_name(value: object, name: str, most: int = MAX_NAME_BYTES) -> str:
    """Return a name or id of 1 to `most` bytes of UTF-8; raises `TypeError` or `ValueError`, which name `name`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ValueError(f"{name} must be valid Unicode (it has a lone surrogate)") from None
    if not 1 <= size <= most:
        raise ValueError(f"{name} must be 1 to {most} bytes of UTF-8, not {size}")
    return value
