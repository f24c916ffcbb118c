"""Bindings: which arguments of a job take the values of which of its dependencies, filled in before its first run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Literal, TypeVar

import msgspec

from penstock.errors import UNREADABLE, InvalidPayload, JobError
from penstock.model.flow import DependencyEntry, End
from penstock.model.serde import Codec, decode, encode

__all__ = ["Binding", "Ended", "Taken", "encode_bindings", "fill"]

R = TypeVar("R")

#: The part of a dependency that an argument takes: its result, its error, or how it ended with either.
Taken = Literal["result", "error", "outcome"]


class Ended(msgspec.Struct, Generic[R], frozen=True):
    """How a job ended: `completed` with its value, or with its error (None if it was cancelled without one)."""

    state: End
    value: R | None = None
    error: JobError | None = None

    @property
    def ok(self) -> bool:
        """Whether it completed."""
        return self.state is End.COMPLETED


class Binding(msgspec.Struct, frozen=True, array_like=True):
    """An argument that takes values: its name, and the position in it if it is a list with an element to fill in.

    `numbers` are the dependencies. With `many` the argument is a list of all their values.
    """

    argument: str
    numbers: tuple[int, ...]
    taken: Taken = "result"
    many: bool = False
    position: int | None = None


def encode_bindings(bindings: Sequence[Binding]) -> bytes:
    """Return the stored form of bindings."""
    return msgspec.msgpack.encode(list(bindings)) if bindings else b""


def fill(
    payload: bytes, data: bytes, codec: Callable[[str], Codec], queue: str, id: str,
    entries: Mapping[int, DependencyEntry],
) -> bytes:  # fmt: skip
    """Return a payload with the values of dependencies filled in; raises `InvalidPayload` if that is not possible."""
    serde = codec(queue).payload_for(id)
    try:
        bindings = msgspec.msgpack.decode(data, type=list[Binding])
    except UNREADABLE as error:
        raise InvalidPayload(f"the bindings of the arguments cannot be read: {error}") from None
    arguments = decode(serde, payload)
    if not isinstance(arguments, dict):
        raise InvalidPayload("values of other jobs can only be filled into a payload that is an object")
    for binding in bindings:
        values = [_value(binding.taken, entries[number], codec) for number in binding.numbers]
        value = values if binding.many else values[0]
        if binding.position is None:
            arguments[binding.argument] = value
        else:
            arguments[binding.argument][binding.position] = value
    return encode(serde, arguments, "payload")


def _value(taken: Taken, entry: DependencyEntry, codec: Callable[[str], Codec]) -> Any:
    error = None if entry.end is End.COMPLETED or entry.value is None else JobError.decode(entry.value)
    shown = None if error is None else msgspec.to_builtins(error)
    if taken == "error":
        return shown or msgspec.to_builtins(JobError("JobCancelled", f"job {entry.id!r} was cancelled"))
    value = None
    if entry.end is End.COMPLETED and entry.value is not None:
        value = decode(codec(entry.queue).result_for(entry.id), entry.value)
    if taken == "result":
        return value
    return {"state": entry.end, "value": value, "error": shown}
