"""Headers: labels of a job, text to text."""

from __future__ import annotations

import pytest

from penstock.model.headers import decode_headers, encode_headers


def test_headers_map_text_to_text() -> None:
    """Headers survive the trip, take no bytes when empty, and nothing else is let in."""
    assert decode_headers(encode_headers({"trace": "1"})) == {"trace": "1"}
    assert encode_headers(None) == encode_headers({}) == b""
    assert decode_headers(b"") == decode_headers(b"\xc1") == {}
    for bad in ({"a": 1}, {1: "a"}, ["a"], []):
        with pytest.raises(TypeError, match="headers"):
            encode_headers(bad)  # type: ignore[arg-type]
