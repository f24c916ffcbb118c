"""The serdes that come with Penstock: JSON, msgpack and raw bytes, with Pydantic models in the first two."""

from __future__ import annotations

import functools
import inspect
import math
import sys
import typing
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, cast

import msgspec

from penstock.errors import InvalidPayload
from penstock.model.redaction import ModelError, decoding_reason, encoding_reason
from penstock.model.serde import Codec, Serde, Wrapper, decode, encode, innermost, with_innermost

__all__ = [
    "JSON_SAFE_TYPES",
    "JsonSerde",
    "MsgpackSerde",
    "RawSerde",
    "check_type",
    "codec_for",
    "fast_decoder",
    "fast_encoder",
    "mismatch",
    "resolve_serde",
    "serde_named",
]


class _Stateless:
    """Base of serdes without settings: all objects of one class are equal."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class _Typed(_Stateless):
    """Base of the msgspec formats, with a cache of one decoder per type."""

    name: str

    def __init__(self) -> None:
        self._decoders: dict[Any, Callable[[bytes], Any]] = {}

    def dumps(self, value: Any, /) -> bytes:
        """Encode a value; raises `InvalidPayload` for one that the format cannot express."""
        try:
            return self._encode(value)
        except InvalidPayload:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            text = f"cannot be encoded as {self.name}"
            raise InvalidPayload(f"{text}: {error}", without_values=f"{text}: {encoding_reason(error)}") from error

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Decode bytes to a type; raises `InvalidPayload` if they do not fit."""
        try:
            return self.decoder(type)(data)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            text = f"{len(data)} bytes are not {self.name} of the expected type"
            raise InvalidPayload(f"{text}: {error}", without_values=f"{text}: {decoding_reason(error)}") from error

    def decoder(self, type: Any) -> Callable[[bytes], Any]:
        """Return the decoder of a type; raises `TypeError` for a type that neither library decodes to."""
        try:
            found = self._decoders.get(type)
        except TypeError:  # an annotation that cannot be hashed
            return self._build(type)
        if found is None:
            found = self._decoders[type] = self._build(type)
        return found

    def _build(self, type: Any) -> Callable[[bytes], Any]:
        """Build a decoder: Pydantic for models and unions with them, msgspec with a hook for models for all else."""
        if is_model(type):
            return self._by_pydantic(type.model_validate_json)
        try:
            return self._by_msgspec(type)
        except TypeError:
            if not mentions_model(type):
                raise
        return self._by_pydantic(cast("Any", sys.modules["pydantic"]).TypeAdapter(type).validate_json)

    def _encode(self, value: Any) -> bytes:
        raise NotImplementedError

    def _by_msgspec(self, type: Any) -> Callable[[bytes], Any]:
        raise NotImplementedError

    def _by_pydantic(self, validate: Callable[..., Any]) -> Callable[[bytes], Any]:
        raise NotImplementedError


class JsonSerde(_Typed):
    """JSON, typed by the handler's annotation: dataclasses, TypedDicts, Structs, attrs, Pydantic models, datetimes…"""

    name = "JSON"

    def _encode(self, value: Any) -> bytes:
        data = _encode_json(value)
        _check_json(value)  # after the encoder, which refuses a value that contains itself: the check would not end
        return data

    def _by_msgspec(self, type: Any) -> Callable[[bytes], Any]:
        return msgspec.json.Decoder(type, dec_hook=_decode_model).decode

    def _by_pydantic(self, validate: Callable[..., Any]) -> Callable[[bytes], Any]:
        return functools.partial(_validate, validate)


class MsgpackSerde(_Typed):
    """Msgpack: as JSON, smaller, and with bytes."""

    name = "msgpack"

    def _encode(self, value: Any) -> bytes:
        return _encode_msgpack(value)

    def _by_msgspec(self, type: Any) -> Callable[[bytes], Any]:
        return msgspec.msgpack.Decoder(type, dec_hook=_decode_model).decode

    def _by_pydantic(self, validate: Callable[..., Any]) -> Callable[[bytes], Any]:
        return lambda data: _validate(validate, _encode_json(msgspec.msgpack.decode(data)))


class RawSerde(_Stateless):
    """Raw bytes; text as UTF-8 if the annotation is `str`."""

    def dumps(self, value: Any, /) -> bytes:
        """Return bytes unchanged and text as UTF-8; raises `InvalidPayload` for other types."""
        if isinstance(value, bytes | bytearray | memoryview):
            return bytes(cast("bytes", value))
        if isinstance(value, str):
            try:
                return value.encode()
            except UnicodeEncodeError as error:
                text = "cannot be encoded as UTF-8"
                raise InvalidPayload(f"{text}: {error}", without_values=text) from error
        raise _refusal(f"must be bytes or str with the raw serde, not {type(value).__name__}")

    def loads(self, data: bytes, type: Any, /) -> Any:
        """Return the bytes, or their text if the type is `str`."""
        if type is not str:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            text = f"{len(data)} bytes are not UTF-8 text"
            raise InvalidPayload(f"{text}: {error}", without_values=text) from error


_NAMED: dict[str, Serde] = {"json": JsonSerde(), "msgpack": MsgpackSerde(), "raw": RawSerde()}


def serde_named(name: str) -> Serde:
    """Return the serde of a name: "json", "msgpack" or "raw"."""
    try:
        return _NAMED[name]
    except KeyError:
        known = ", ".join(map(repr, _NAMED))
        raise ValueError(f"serde must be one of {known} or an object with dumps and loads, not {name!r}") from None


def resolve_serde(serde: str | Serde, name: str = "serde") -> Serde:
    """Return the serde that a user gave by name or as an object; errors name the argument `name`."""
    if isinstance(serde, str):
        return serde_named(serde)
    if not isinstance(serde, Serde):
        raise TypeError(f"{name} must be a serde's name or an object with dumps and loads, not {type(serde).__name__}")
    return serde


def codec_for(payload: Serde, result: Serde | None) -> Codec:
    """Return the codec of a queue: results use the serde of payloads unless they have their own.

    Raw bytes cannot express None, which many results are, so results of a raw queue are msgpack.
    """
    if result is None:
        is_raw = isinstance(innermost(payload), RawSerde)
        result = with_innermost(payload, serde_named("msgpack")) if is_raw else payload
    return Codec(payload, result)


def fast_decoder(serde: Serde, type: Any) -> Callable[[bytes], Any]:
    """Return the fastest decoder to a type. On any exception call `decode`, which raises a precise one.

    It gives the values of `decode`, because `loads` calls the same decoder.
    """
    return serde.decoder(type) if isinstance(serde, _Typed) else functools.partial(decode, serde, type=type)


def fast_encoder(serde: Serde) -> Callable[[Any], bytes]:
    """Return the fastest encoder for `JSON_SAFE_TYPES`. On any exception call `encode`, which raises a precise one."""
    return _ENCODERS.get(type(serde)) or functools.partial(encode, serde, what="result")


def check_type(serde: Serde, type: Any, what: str = "the payload's annotation") -> None:
    """Raise `TypeError` for an annotation that a serde can never decode to, when the handler is declared."""
    typed = innermost(serde)
    if not isinstance(typed, _Typed):
        return
    try:
        typed.decoder(type)
        unknown = next(_unknown_types(type), None)
        why = None if unknown is None else f"{unknown!r} is not a type that it knows"
    except TypeError as error:
        why = str(error)
    if why is not None:
        raise TypeError(
            f"{what} cannot be decoded from {typed.name} ({why}); "
            "use builtin types, a dataclass, a TypedDict, a msgspec.Struct, a Pydantic model, or no annotation"
        )


def mismatch(serde: Serde, value: Any, type: Any) -> str | None:
    """Return why a value, once encoded, cannot be decoded to a type, as in ".x[0]: expected int, got str".

    None if it can be, and where the serde has no types or will itself refuse the value. With a wrapper
    around the serde, the reason has no part of the value.
    """
    typed = innermost(serde)
    if not isinstance(typed, _Typed):
        return None
    try:
        data = typed.dumps(value)
    except InvalidPayload:
        return None
    try:
        typed.decoder(type)(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        text = decoding_reason(error) if isinstance(serde, Wrapper) else str(error)
        reason, _, place = text.replace("`", "").partition(" - at $")
        return f"{place}: {reason[:1].lower()}{reason[1:]}"
    return None


def _unknown_types(type: Any) -> Iterator[Any]:
    """Yield the classes in an annotation, at any depth, that neither msgspec nor Pydantic decodes."""
    if is_model(type):
        return
    try:
        stack: list[Any] = [msgspec.inspect.type_info(type)]
    except TypeError:  # a type that Pydantic decodes as a whole
        return
    seen = set[int]()
    while stack:
        node = stack.pop()
        if isinstance(node, list | tuple):
            stack.extend(cast("list[Any]", node))
        elif isinstance(node, msgspec.inspect.CustomType):
            if not is_model(node.cls):
                yield node.cls
        elif isinstance(node, msgspec.inspect.Type | msgspec.inspect.Field) and id(node) not in seen:
            seen.add(id(node))
            stack.extend(getattr(node, name) for name in node.__struct_fields__ if name != "default")


def is_model(type: Any) -> bool:
    """Return whether a type is a Pydantic model, judged by its methods so that Pydantic is not imported."""
    return inspect.isclass(type) and hasattr(type, "model_validate_json") and hasattr(type, "model_dump")


def mentions_model(type: Any) -> bool:
    """Return whether an annotation is a model or has one among its arguments."""
    return is_model(type) or any(map(mentions_model, typing.get_args(type)))


def _encode_other(value: Any) -> Any:
    """Encode a value that msgspec does not know: of a subclass as its base, a model in its JSON form."""
    for base, plain in _PLAIN.items():
        if isinstance(value, base):
            return plain(value)
    if not is_model(type(value)):
        raise TypeError(f"objects of type {type(value).__name__} are not supported")
    plain = value.model_dump(mode="json", by_alias=True, round_trip=True)
    _check_json(plain)
    return plain


#: The base of a value of a subclass, without the methods that the subclass may override.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    bytes: bytes.__bytes__,
}


def _decode_model(type: Any, value: Any) -> Any:
    if not is_model(type):
        raise TypeError(f"{type!r} is not a type that can be decoded")
    return _validate(type.model_validate_json, _encode_json(value))


def _validate(validate: Callable[..., Any], data: bytes) -> Any:
    try:
        return validate(data, **_alias_options())
    except ValueError as error:
        names = getattr(getattr(validate, "__self__", None), "model_fields", {})
        raise ModelError(*_describe_errors(error, names)) from None  # Pydantic's own message shows the values


@functools.cache
def _alias_options() -> dict[str, bool]:
    """Return the options that accept a field by alias and by name, from Pydantic 2.11 on.

    Fields are written by alias, but one that has only a validation alias is written by its name.
    """
    version = str(getattr(sys.modules.get("pydantic"), "VERSION", "0.0"))
    known = tuple(int(part) for part in version.split(".")[:2]) >= (2, 11)
    return {"by_alias": True, "by_name": True} if known else {}


def _describe_errors(error: ValueError, names: Container[str]) -> tuple[str, str]:
    """Return the errors of a model with their paths, and without any part of the value: their fields and kinds alone.

    A path may hold the keys of a dict and the names of unknown fields, and a message the tag of a union. `names` are
    the fields of the model.
    """
    try:
        found = cast("Any", error).errors(include_url=False, include_context=False, include_input=False)
    except AttributeError:
        return str(error), type(error).__name__
    text = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'value'}: {each['msg']}" for each in found)
    kinds = {f"{next((name for name in each['loc'][:1] if name in names), 'value')}: {each['type']}" for each in found}
    return text, "; ".join(sorted(kinds))


def _refusal(text: str) -> InvalidPayload:
    """Return the error of a value whose text has no part of it."""
    return InvalidPayload(text, without_values=text)


#: Values of exactly these types come back from JSON unchanged.
JSON_SAFE_TYPES = frozenset({str, int, bool, type(None)})


def _check_json(value: Any) -> None:
    """Refuse bytes and NaN, which msgspec would write as base64 text and null, and read back as those."""
    todo: list[Any] = [value]
    for item in todo:  # the loop appends the parts that it has to visit
        kind = type(item)  # pyright: ignore[reportUnknownVariableType]
        for part in item.values() if kind is dict else item if kind is list else _parts_of(item):
            if type(part) not in JSON_SAFE_TYPES:
                todo.append(part)


def _parts_of(item: Any) -> Iterable[Any]:
    """Return the parts of a value of a less common type; raises `InvalidPayload` for one that JSON cannot express."""
    if isinstance(item, float):
        if not math.isfinite(item):
            raise _refusal(f"cannot be encoded as JSON, which has no {item!r}; send None or use msgpack")
        return ()
    if isinstance(item, (bytes, bytearray, memoryview)):
        raise _refusal('cannot be encoded as JSON, which has no bytes; use serde="msgpack", serde="raw" or base64 text')
    if isinstance(item, dict):
        return cast("dict[Any, Any]", item).values()
    if isinstance(item, (list, tuple, set, frozenset)):
        return cast("list[Any]", item)
    if item is None or isinstance(item, (str, int)):
        return ()
    return [getattr(item, name, None) for name in _field_names(cast("type[Any]", type(item)))]


@functools.lru_cache(maxsize=1024)
def _field_names(kind: type[Any]) -> tuple[str, ...]:
    """Return the fields of a Struct, a dataclass or an attrs class; other classes have none."""
    attributes = cast("tuple[Any, ...]", getattr(kind, "__attrs_attrs__", ()))
    names: tuple[str, ...] = getattr(kind, "__struct_fields__", ()) or getattr(kind, "__dataclass_fields__", ())
    return (*names, *(attribute.name for attribute in attributes))


_encode_json = msgspec.json.Encoder(enc_hook=_encode_other).encode
_encode_msgpack = msgspec.msgpack.Encoder(enc_hook=_encode_other).encode
_ENCODERS: dict[type, Callable[[Any], bytes]] = {JsonSerde: _encode_json, MsgpackSerde: _encode_msgpack}
