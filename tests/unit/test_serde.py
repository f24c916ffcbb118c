"""Encoding and decoding with any serde."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidPayload
from penstock.model.serde import decode, encode


def test_a_foreign_serde_that_raises_is_an_invalid_payload() -> None:
    """Whatever a custom serde raises is reported as what it means."""

    class Broken:
        def dumps(self, value: Any, /) -> bytes:
            raise KeyError("dumps")

        def loads(self, data: bytes, type: Any, /) -> Any:
            raise KeyError("loads")

    with pytest.raises(InvalidPayload, match="payload cannot be encoded"):
        encode(Broken(), 1, "payload")
    with pytest.raises(InvalidPayload, match="cannot be decoded"):
        decode(Broken(), b"1")
