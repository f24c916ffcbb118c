"""Headers: labels of a job, text to text, which are stored next to its payload."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.errors import UNREADABLE

__all__ = ["MAX_HEADERS", "RESERVED", "decode_headers", "encode_headers", "encode_user_headers", "user_headers"]

#: The most bytes that the headers of a job may have together: headers are labels, not data.
MAX_HEADERS = 32_768
#: Headers that Penstock writes itself begin with this.
RESERVED = "penstock."


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Encode headers; raises `TypeError` unless they map text to text, `ValueError` if UTF-8 cannot encode them."""
    if headers is None:
        return b""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must map str to str, not be {type(headers).__name__}")
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"headers must map str to str; {key!r} does not")
    try:
        plain = {str.__str__(key): str.__str__(value) for key, value in headers.items()}
        return msgspec.msgpack.encode(plain) if plain else b""
    except UnicodeEncodeError:
        raise ValueError("headers must be valid Unicode (a key or a value holds a lone surrogate)") from None


def encode_user_headers(headers: Mapping[str, str] | None) -> bytes:
    """Encode headers that a user gives; raises `ValueError` for a reserved name or more than `MAX_HEADERS` bytes."""
    data = encode_headers(headers)
    for key in headers or ():
        if key.startswith(RESERVED):
            raise ValueError(f"headers must not begin with {RESERVED!r}, which Penstock uses itself; {key!r} does")
    if len(data) > MAX_HEADERS:
        raise ValueError(f"headers are {len(data)} bytes together, more than {MAX_HEADERS}; put data into the payload")
    return data


def user_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers that a user gave, without the reserved ones."""
    return {key: value for key, value in headers.items() if not key.startswith(RESERVED)}


def decode_headers(data: bytes) -> dict[str, str]:
    """Decode headers; unreadable bytes give no headers, because a job must not fail for its labels."""
    try:
        return _decode_headers(data) if data else {}
    except UNREADABLE:
        return {}


_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
