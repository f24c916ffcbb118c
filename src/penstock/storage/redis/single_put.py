"""Encoder of the most frequent call of a producer: `put.lua` with one plain job whose id was just made up.

The general path is `PutCalls.send` with `encode_plain_jobs` and `Connection.run`. In this call only the number, the
waiter, the id and the payload differ from the call before, so the bytes of all other arguments are kept. That takes
4 µs off the 14 (sync) or 26 (async) that an enqueue costs the client. tests/storage/test_fast_and_slow.py compares the
answers, and tests/conformance/test_redis_single_puts.py loses them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.storage.redis.connection import Connection
from penstock.storage.redis.pipeline import pack_command
from penstock.storage.redis.script_calls import ScriptCalls

__all__ = ["SinglePutEncoder"]

#: The constant parts of this many calls are kept.
_MAX_KEPT = 1000


class SinglePutEncoder:
    """Encodes single puts as bytes of the protocol; for one server, without a test clock."""

    def __init__(self, connection: Connection, calls: ScriptCalls) -> None:
        self._connection = connection
        self._calls = calls
        self._constants: dict[tuple[str, str, int], tuple[bytes, bytes]] = {}

    def encode(self, queue: str, caller: str, number: int, encoded: Sequence[Any]) -> bytes:
        """Encode the numbered call of a caller; `encoded` comes from `encode_plain_jobs` for one fresh job."""
        _, waiter, id, payload = encoded
        kept = self._constants.get((queue, caller, self._calls.format))
        before, between = kept or self._encode_constants(queue, caller)
        digits, channel, id = b"%d" % number, waiter.encode(), id.encode()
        return b"%b$%d\r\n%b\r\n%b$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
            before, len(digits), digits, between, len(channel), channel, len(id), id, len(payload), payload,
        )  # fmt: skip

    def _encode_constants(self, queue: str, caller: str) -> tuple[bytes, bytes]:
        """Encode the arguments before the number, and those between the number and the waiter."""
        script, keys, args = self._calls.build("put", queue, (caller,))
        first = ("EVALSHA", script.sha, len(keys), *keys, *args)
        then = (self._connection.retry_window_ms, "fresh")
        count = len(first) + 1 + len(then) + 3
        constants = b"*%d\r\n%b" % (count, _encode_args(first)), _encode_args(then)
        if len(self._constants) >= _MAX_KEPT:
            self._constants.clear()
        self._constants[queue, caller, self._calls.format] = constants
        return constants


def _encode_args(args: Sequence[Any]) -> bytes:
    """Encode arguments as inside a command, without the line with their number."""
    return pack_command(*args).partition(b"\r\n")[2]
