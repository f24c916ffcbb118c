"""Headers: labels beside a payload, text to text."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.errors import UNREADABLE

__all__ = ["decode_headers", "encode_headers"]


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Headers to bytes, checked: they map text to text."""
    if headers is None:
        return b""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must map str to str, not be {type(headers).__name__}")
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"headers must map str to str; {key!r} does not")
    return msgspec.msgpack.encode(dict(headers)) if headers else b""


def decode_headers(data: bytes) -> dict[str, str]:
    """Headers from bytes; unreadable ones are none, because a job must not fail for its labels."""
    try:
        return _decode_headers(data) if data else {}
    except UNREADABLE:
        return {}


_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
