"""Payloads and results to bytes and back: JSON, msgpack, raw, or your own."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from penstock.errors import InvalidPayload

__all__ = ["Serde", "Wrapper", "decode", "encode", "innermost"]


@runtime_checkable
class Serde(Protocol):
    """How values become bytes and bytes values; any object with these two methods will do.

    Two serdes of one queue must be equal, so one that is made anew wants an `__eq__`.
    """

    def dumps(self, value: Any, /) -> bytes:
        """Turn a value into bytes, or raise `InvalidPayload`."""
        ...

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Turn bytes into a value of this annotation (`Any` without one), or raise `InvalidPayload`."""
        ...


@runtime_checkable
class Wrapper(Serde, Protocol):
    """A serde around another one: what it adds is about bytes, not about values."""

    @property
    def inner(self) -> Serde:
        """The serde inside."""
        ...

    def around(self, inner: Serde, /) -> Serde:
        """The same wrapping around another serde."""
        ...


def innermost(serde: Serde) -> Serde:
    """The serde that knows about values, whatever is wrapped around it."""
    while isinstance(serde, Wrapper):
        serde = serde.inner
    return serde


def encode(serde: Serde, value: Any, what: str) -> bytes:
    """Encode with anybody's serde; whatever goes wrong is an `InvalidPayload` that says what it was about."""
    try:
        data = serde.dumps(value)
    except InvalidPayload as error:
        raise InvalidPayload(f"{what} {error}") from error
    except Exception as error:
        raise InvalidPayload(f"{what} cannot be encoded by {serde!r}: {error}") from error
    if not isinstance(data, bytes):
        raise InvalidPayload(f"{what}: {serde!r} must give bytes, not {type(data).__name__}")
    return data


def decode(serde: Serde, data: bytes, type: Any = Any) -> Any:
    """Decode with anybody's serde; whatever goes wrong is an `InvalidPayload`."""
    try:
        return serde.loads(data, type)
    except InvalidPayload:
        raise
    except Exception as error:
        raise InvalidPayload(f"{len(data)} bytes cannot be decoded by {serde!r}: {error}") from error
