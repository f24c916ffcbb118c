"""Headers: labels of a job, text to text."""

from __future__ import annotations

import pytest

from penstock.model.headers import RESERVED, decode_headers, encode_headers, encode_user_headers, user_headers


def test_headers_map_text_to_text() -> None:
    """Headers survive the trip, take no bytes when empty, and nothing else is let in."""
    assert decode_headers(encode_headers({"trace": "1"})) == {"trace": "1"}
    assert encode_headers(None) == encode_headers({}) == b""
    assert decode_headers(b"") == decode_headers(b"\xc1") == {}
    for bad in ({"a": 1}, {1: "a"}, ["a"], []):
        with pytest.raises(TypeError, match="headers"):
            encode_headers(bad)  # type: ignore[arg-type]


def test_headers_of_penstock_are_reserved() -> None:
    """A user cannot give them; and they are kept apart from the user's when they are read."""
    with pytest.raises(ValueError, match=r"headers must not begin with 'penstock\.'.* 'penstock\.tz' does"):
        encode_user_headers({"a": "1", f"{RESERVED}tz": "UTC"})
    assert decode_headers(encode_user_headers({"penstock": "1"})) == {"penstock": "1"}
    assert user_headers({"penstock.tz": "UTC", "a": "1"}) == {"a": "1"}
