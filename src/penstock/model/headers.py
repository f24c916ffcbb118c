"""Headers: labels of a job, text to text, which are stored next to its payload."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.errors import UNREADABLE

__all__ = ["MAX_HEADERS", "decode_headers", "encode_headers"]

#: The most bytes that the headers of a job may have together: headers are labels, not data.
MAX_HEADERS = 32_768


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


def decode_headers(data: bytes) -> dict[str, str]:
    """Decode headers; unreadable bytes give no headers, because a job must not fail for its labels."""
    try:
        return _decode_headers(data) if data else {}
    except UNREADABLE:
        return {}


_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
