"""The interface of serdes, which turn payloads and results into bytes and back; the formats are in `formats`."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from penstock.errors import InvalidPayload

__all__ = ["Codec", "Serde", "Wrapper", "check_result", "decode", "encode", "innermost"]


@runtime_checkable
class Serde(Protocol):
    """Encoder and decoder of values; any object with these two methods will do.

    Two serdes given for one queue must be equal, so a class whose objects are made anew needs an `__eq__`.
    """

    def dumps(self, value: Any, /) -> bytes:
        """Turn a value into bytes, or raise `InvalidPayload`."""
        ...

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Turn bytes into a value of this annotation (`Any` without one), or raise `InvalidPayload`."""
        ...


@runtime_checkable
class Wrapper(Serde, Protocol):
    """A serde around another one, which changes bytes and knows nothing about values."""

    @property
    def inner(self) -> Serde:
        """The serde inside."""
        ...

    def around(self, inner: Serde, /) -> Serde:
        """Return the same wrapper around another serde."""
        ...


class Codec(msgspec.Struct, frozen=True):
    """The two serdes of a queue."""

    payload: Serde
    result: Serde


def innermost(serde: Serde) -> Serde:
    """Return the serde inside all wrappers, which encodes the values."""
    while isinstance(serde, Wrapper):
        serde = serde.inner
    return serde


def encode(serde: Serde, value: Any, what: str) -> bytes:
    """Encode a value with any serde; every error becomes an `InvalidPayload` that begins with `what`."""
    try:
        data = serde.dumps(value)
    except InvalidPayload as error:
        raise InvalidPayload(f"{what} {error}") from error
    except Exception as error:
        raise InvalidPayload(f"{what} cannot be encoded by {serde!r}: {error}") from error
    if not isinstance(data, bytes):
        raise InvalidPayload(f"{what}: {serde!r} must give bytes, not {type(data).__name__}")
    return data


def check_result(data: bytes, most: int) -> bytes:
    """Return an encoded result; raises `InvalidPayload` if it has more than this many bytes."""
    if len(data) > most:
        raise InvalidPayload(
            f"result is {len(data)} bytes, more than max_result ({most}): store it elsewhere and return its name, or "
            "raise Penstock(max_result=…)"
        )
    return data


def decode(serde: Serde, data: bytes, type: Any = Any) -> Any:
    """Decode bytes with any serde; every error becomes an `InvalidPayload`."""
    try:
        return serde.loads(data, type)
    except InvalidPayload:
        raise
    except Exception as error:
        raise InvalidPayload(f"{len(data)} bytes cannot be decoded by {serde!r}: {error}") from error
