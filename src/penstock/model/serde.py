"""The interface of serdes, which turn payloads and results into bytes and back; the formats are in `formats`."""

from __future__ import annotations

from typing import Any, Literal, Protocol, TypeGuard, runtime_checkable

import msgspec
from msgspec.structs import replace

from penstock.errors import InvalidPayload

__all__ = [
    "Bindable",
    "Codec",
    "Place",
    "Serde",
    "Wrapper",
    "bind_codec",
    "bind_serde",
    "check_result",
    "decode",
    "encode",
    "innermost",
    "is_bindable",
    "with_innermost",
    "without_values",
]


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


class Place(msgspec.Struct, frozen=True):
    """Where bytes belong: a namespace, a queue, whether they are a payload or a result, and perhaps a job's id."""

    namespace: str
    queue: str
    kind: Literal["payload", "result"]
    id: str | None = None


class Bindable(Serde, Protocol):
    """A serde whose bytes are valid in one place only: those of another queue are refused."""

    @property
    def bind(self) -> Literal["queue", "job"]:
        """Whether it is bound once for each queue, or once more for each job, with its id."""
        ...

    def bound(self, place: Place, /) -> Serde:
        """Return this serde for one place, with the serdes inside bound too."""
        ...


class Codec(msgspec.Struct, frozen=True):
    """The two serdes of a queue, bound to it. A serde that is bound to each job needs its id: see `payload_for`."""

    payload: Serde
    result: Serde
    #: The place without its id, if the serde is bound to each job.
    payload_of_job: Place | None = None
    result_of_job: Place | None = None

    def payload_for(self, id: str) -> Serde:
        """Return the serde of one job's payload."""
        place = self.payload_of_job
        return self.payload if place is None else bind_serde(self.payload, replace(place, id=id))

    def result_for(self, id: str) -> Serde:
        """Return the serde of one job's result."""
        place = self.result_of_job
        return self.result if place is None else bind_serde(self.result, replace(place, id=id))


def innermost(serde: Serde) -> Serde:
    """Return the serde inside all wrappers, which encodes the values."""
    while _is_wrapper(serde):
        serde = serde.inner
    return serde


def with_innermost(serde: Serde, inner: Serde) -> Serde:
    """Return the same wrappers around another innermost serde."""
    return serde.around(with_innermost(serde.inner, inner)) if _is_wrapper(serde) else inner


def is_bindable(serde: Serde, bind: Literal["queue", "job"] | None = None) -> bool:
    """Return whether a serde, or one inside it, is bound to its place; with `bind` only those bound in this way."""
    if _has_place(serde) and bind in (None, serde.bind):
        return True
    return _is_wrapper(serde) and is_bindable(serde.inner, bind)


def _is_wrapper(serde: Serde) -> TypeGuard[Wrapper]:
    """Return whether a serde is a `Wrapper`; `isinstance` would take longer than to encode a payload."""
    return hasattr(serde, "around") and hasattr(serde, "inner")


def _has_place(serde: Serde) -> TypeGuard[Bindable]:
    """Return whether a serde is `Bindable` itself; `isinstance` would take longer than to sign a payload."""
    return hasattr(serde, "bound") and hasattr(serde, "bind")


def bind_serde(serde: Serde, place: Place) -> Serde:
    """Return a serde for one place; wrappers that are not bound themselves keep their settings around a bound one."""
    if _has_place(serde):
        return serde.bound(place)
    if _is_wrapper(serde) and is_bindable(serde.inner):
        return serde.around(bind_serde(serde.inner, place))
    return serde


def bind_codec(codec: Codec, namespace: str, queue: str) -> Codec:
    """Return the codec of a queue with its serdes bound to their places; serdes that have none stay as they are."""
    payload, result = Place(namespace, queue, "payload"), Place(namespace, queue, "result")
    return Codec(
        bind_serde(codec.payload, payload),
        bind_serde(codec.result, result),
        payload if is_bindable(codec.payload, "job") else None,
        result if is_bindable(codec.result, "job") else None,
    )


def encode(serde: Serde, value: Any, what: str) -> bytes:
    """Encode a value with any serde; every error becomes an `InvalidPayload` that begins with `what`.

    The error of a wrapper has no part of the value, neither in its message nor in an exception before it.
    """
    try:
        data = serde.dumps(value)
    except Exception as error:
        if not isinstance(serde, Wrapper):
            why = str(error) if isinstance(error, InvalidPayload) else f"cannot be encoded by {serde!r}: {error}"
            raise InvalidPayload(f"{what} {why}") from error
        why = without_values(error, f"cannot be encoded by {serde!r}")
    else:
        if isinstance(data, bytes):
            return data
        why = f"{serde!r} must give bytes, not {type(data).__name__}"
        raise InvalidPayload(f"{what}: {why}")
    raise InvalidPayload(f"{what} {why}", without_values=f"{what} {why}")


def check_result(data: bytes, most: int) -> bytes:
    """Return an encoded result; raises `InvalidPayload` if it has more than this many bytes."""
    if len(data) > most:
        raise InvalidPayload(
            f"result is {len(data)} bytes, more than max_result ({most}): store it elsewhere and return its name, or "
            "raise Penstock(max_result=…)"
        )
    return data


def decode(serde: Serde, data: bytes, type: Any = Any) -> Any:
    """Decode bytes with any serde; every error becomes an `InvalidPayload`.

    The error of a wrapper has no part of the value, neither in its message nor in an exception before it.
    """
    try:
        return serde.loads(data, type)
    except Exception as error:
        if not isinstance(serde, Wrapper):
            if isinstance(error, InvalidPayload):
                raise
            raise InvalidPayload(f"{len(data)} bytes cannot be decoded by {serde!r}: {error}") from error
        why = without_values(error, f"{len(data)} bytes cannot be decoded by {serde!r}")
    raise InvalidPayload(why, without_values=why)


def without_values(error: Exception, otherwise: str) -> str:
    """Return the message of an error of a serde without values; `otherwise` and its class if there is no such text."""
    if isinstance(error, InvalidPayload) and error.without_values is not None:
        return error.without_values
    return f"{otherwise}: {type(error).__name__}"
