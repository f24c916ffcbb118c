"""Payloads and results to bytes and back: JSON, msgpack, raw, or your own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast, runtime_checkable

import msgspec

from penstock.errors import InvalidPayload

__all__ = [
    "Codec",
    "JsonSerde",
    "MsgpackSerde",
    "RawSerde",
    "Serde",
    "check_type",
    "decode_headers",
    "encode",
    "encode_headers",
    "resolve_serde",
    "serde_named",
]


@runtime_checkable
class Serde(Protocol):
    """How values become bytes and bytes values; `type` is the annotation to decode to, or `Any`."""

    def dumps(self, value: Any, /) -> bytes: ...

    def loads(self, data: bytes, type: Any, /) -> Any: ...


class _Typed:
    """A msgspec format with one decoder for each type it has met."""

    name: str

    def __init__(self) -> None:
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def loads(self, data: bytes, type: Any, /) -> Any:
        try:
            return self.decoder(type)(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidPayload(f"{len(data)} bytes are no {self.name} of the expected type: {error}") from error

    def decoder(self, type: Any) -> Callable[[bytes], Any]:
        """The decoder for a type; raises `TypeError` for one that msgspec cannot decode to."""
        try:
            found = self._decoders.get(type)
        except TypeError:  # an annotation that cannot be hashed
            return self._build(type)
        if found is None:
            found = self._decoders[type] = self._build(type)
        return found

    def _build(self, type: Any) -> Callable[[bytes], Any]:
        raise NotImplementedError


class JsonSerde(_Typed):
    """JSON, typed by the handler's annotation: dataclasses, TypedDicts, Structs, datetimes, UUIDs and the like."""

    name = "JSON"

    def dumps(self, value: Any, /) -> bytes:
        try:
            _check_json(value)
            return _encode_json(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            if isinstance(error, InvalidPayload):
                raise
            raise InvalidPayload(f"cannot be encoded as JSON: {error}") from error

    def _build(self, type: Any) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(type).decode


class MsgpackSerde(_Typed):
    """Msgpack: as JSON, smaller, and with bytes."""

    name = "msgpack"

    def dumps(self, value: Any, /) -> bytes:
        try:
            return _encode_msgpack(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidPayload(f"cannot be encoded as msgpack: {error}") from error

    def _build(self, type: Any) -> Callable[[bytes], Any]:
        return msgspec.msgpack.Decoder(type).decode


class RawSerde:
    """Bytes as they are; text as UTF-8 where the annotation says `str`."""

    def __repr__(self) -> str:
        return "RawSerde()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def dumps(self, value: Any, /) -> bytes:
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(cast("bytes", value))
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                raise InvalidPayload(f"cannot be encoded as UTF-8: {error}") from error
        raise InvalidPayload(f"must be bytes or str with the raw serde, not {type(value).__name__}")

    def loads(self, data: bytes, type: Any, /) -> Any:
        if type is not str:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise InvalidPayload(f"{len(data)} bytes are no UTF-8 text: {error}") from error


_NAMED: dict[str, Serde] = {"json": JsonSerde(), "msgpack": MsgpackSerde(), "raw": RawSerde()}


def serde_named(name: str) -> Serde:
    """One of the serdes that come with Penstock: "json", "msgpack" or "raw"."""
    try:
        return _NAMED[name]
    except KeyError:
        known = ", ".join(map(repr, _NAMED))
        raise ValueError(f"serde must be one of {known} or an object with dumps and loads, not {name!r}") from None


def resolve_serde(serde: str | Serde, name: str = "serde") -> Serde:
    """A serde as the user gives it, by name or as an object; `name` is the argument to blame."""
    if isinstance(serde, str):
        return serde_named(serde)
    if not isinstance(serde, Serde):
        raise TypeError(f"{name} must be a serde's name or an object with dumps and loads, not {type(serde).__name__}")
    return serde


class Codec(msgspec.Struct, frozen=True):
    """The two serdes of a queue."""

    payload: Serde
    result: Serde

    @classmethod
    def of(cls, payload: Serde, result: Serde | None) -> Codec:
        """Results go the way of payloads, but raw bytes have no None: there they are msgpack."""
        if result is None:
            result = serde_named("msgpack") if isinstance(payload, RawSerde) else payload
        return cls(payload, result)


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


def check_type(serde: Serde, type: Any) -> None:
    """Refuse an annotation that this serde can never decode to, when the handler is declared."""
    if not isinstance(serde, _Typed):
        return
    try:
        serde.decoder(type)
        unknown = isinstance(msgspec.inspect.type_info(type), msgspec.inspect.CustomType)
        why = f"{type!r} is no type that it knows" if unknown else None
    except TypeError as error:
        why = str(error)
    if why is not None:
        raise TypeError(
            f"the payload's annotation cannot be decoded from {serde.name} ({why}); "
            "use builtin types, a dataclass, a TypedDict, a msgspec.Struct, or no annotation"
        )


def encode_headers(headers: Mapping[str, str] | None) -> bytes:
    """Headers to bytes, checked: they map text to text."""
    if not headers:
        if headers is not None and not isinstance(headers, Mapping):
            raise TypeError(f"headers must map str to str, not be {type(headers).__name__}")
        return b""
    if not isinstance(headers, Mapping):
        raise TypeError(f"headers must map str to str, not be {type(headers).__name__}")
    for key, value in headers.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"headers must map str to str; {key!r} does not")
    return _encode_msgpack(dict(headers))


def decode_headers(data: bytes) -> dict[str, str]:
    """Headers from bytes; unreadable ones are none, because a job must not fail for its labels."""
    try:
        return _decode_headers(data) if data else {}
    except msgspec.MsgspecError:
        return {}


def _check_json(value: Any) -> None:
    """msgspec would write bytes as base64 text and NaN as null, which come back as something else."""
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        kind = cast("type[object]", type(item))
        if kind is dict:
            stack.extend(item.values())
        elif kind is list or kind is tuple or kind is set:
            stack.extend(item)
        elif kind is float:
            if not math.isfinite(item):
                raise InvalidPayload(f"cannot be encoded as JSON: it has no {item!r}; send None or use msgpack")
        elif isinstance(item, bytes | bytearray | memoryview):
            raise InvalidPayload(
                'cannot be encoded as JSON: it has no bytes; use serde="msgpack", serde="raw" or base64 text'
            )


_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode
_decode_headers = msgspec.msgpack.Decoder(dict[str, str]).decode
