"""Bindings: which arguments of a job take the values of which of its dependencies, filled in before its first run."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Literal, Protocol, TypeVar, cast

import msgspec

from penstock.errors import UNREADABLE, InvalidPayload, JobError, PermanentError
from penstock.model.flow import DependencyEntry, DependencyPage, End
from penstock.model.job import Claim
from penstock.model.serde import Codec, decode, encode

__all__ = [
    "MAX_FILLED",
    "Binding",
    "Ended",
    "InputServices",
    "Inputs",
    "Taken",
    "decode_bindings",
    "encode_bindings",
    "fill",
    "inputs_of",
    "is_filled",
]

R = TypeVar("R")

#: The part of a dependency that an argument takes: its result, its error, how it ended with either, or its result
#: when the handler comes to it.
Taken = Literal["result", "error", "outcome", "inputs"]

#: The bytes of the values that are filled into the arguments of a job at most.
MAX_FILLED = 64 * 1024 * 1024


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

    The dependencies are those from number `first` on, each `step`th, `count` of them, or (None) all. With `many` the
    argument is a list of all their values. `of` is the job (queue and id) whose serde the value has, if it is another.
    """

    argument: str
    first: int
    count: int | None
    step: int = 1
    taken: Taken = "result"
    many: bool = False
    position: int | None = None
    of: tuple[str, str] | None = None

    def numbers(self, total: int) -> range:
        """Return the numbers of its dependencies, of which there are `total`."""
        last = total if self.count is None else self.first + self.count * self.step
        return range(self.first, last, self.step)


class InputServices(Protocol):
    """The services of a worker that `Inputs` uses."""

    def dependency_page(self, claim: Claim, after: int) -> Awaitable[DependencyPage | None]: ...

    def codec(self, queue: str) -> Codec: ...

    def wait_for(self, call: Awaitable[Any]) -> Any: ...


class Inputs(Generic[R]):
    """The results of other jobs, which are read page by page: `async for value in inputs`.

    In a plain handler it is `for value in inputs`. It can be read again from the beginning.
    """

    def __init__(self, claim: Claim, services: InputServices, binding: Binding, type: Any) -> None:
        self._claim, self._services, self._binding, self._type = claim, services, binding, type

    def __repr__(self) -> str:
        return f"<Inputs of {self._claim.id!r}>"

    def __len__(self) -> int:
        assert self._claim.flow is not None
        return len(self._binding.numbers(self._claim.flow.needs))

    async def __aiter__(self) -> AsyncIterator[R]:
        after: int | None = -1
        while after is not None:
            values, after = await self._page(after)
            for value in values:
                yield value

    def __iter__(self) -> Iterator[R]:
        after: int | None = -1
        while after is not None:
            values, after = self._services.wait_for(self._page(after))
            yield from values

    async def _page(self, after: int) -> tuple[list[R], int | None]:
        """Return the values of a page of dependencies, and the number of the last one; None at the end."""
        assert self._claim.flow is not None
        numbers = self._binding.numbers(self._claim.flow.needs)
        page = await self._services.dependency_page(self._claim, max(after, numbers.start - 1))
        if page is None or not page.dependencies:
            return [], None
        values = [self._value(entry) for entry in page.dependencies if entry.number in numbers]
        last = page.dependencies[-1].number
        return values, last if page.more and last < numbers.stop - 1 else None

    def _value(self, entry: DependencyEntry) -> R:
        codec = self._services.codec(entry.queue)
        try:
            return cast("R", decode(codec.result_for(entry.id), entry.value or b"", self._type))
        except InvalidPayload as error:
            raise PermanentError(f"the result of {entry.id!r} in {entry.queue!r} cannot be read: {error}") from error


def encode_bindings(bindings: Sequence[Binding]) -> bytes:
    """Return the stored form of bindings."""
    return msgspec.msgpack.encode(list(bindings)) if bindings else b""


def decode_bindings(data: bytes) -> list[Binding]:
    """Return bindings from their stored form; raises `InvalidPayload`."""
    try:
        return _decode(data) if data else []
    except UNREADABLE as error:
        raise InvalidPayload(f"the bindings of the arguments cannot be read: {error}") from None


_decode = msgspec.msgpack.Decoder(list[Binding]).decode


def is_filled(data: bytes) -> bool:
    """Return whether bindings need the values of dependencies before the handler is called."""
    return any(binding.taken != "inputs" for binding in decode_bindings(data))


def inputs_of(claim: Claim, services: InputServices, argument: str, type: Any) -> Inputs[Any]:
    """Return the values that a parameter reads page by page; raises `PermanentError` if the job has none for it."""
    data = b"" if claim.flow is None else claim.flow.binds
    for binding in decode_bindings(data):
        if binding.argument == argument and binding.taken == "inputs":
            return Inputs(claim, services, binding, type)
    raise PermanentError(f"{argument!r} takes the values of other jobs: hand it nodes.inputs in a flow")


def fill(
    payload: bytes, data: bytes, codec: Callable[[str], Codec], queue: str, id: str, entries: Iterable[DependencyEntry]
) -> bytes:
    """Return a payload with the values of dependencies filled in; raises `InvalidPayload` if that is not possible."""
    serde = codec(queue).payload_for(id)
    bindings = [binding for binding in decode_bindings(data) if binding.taken != "inputs"]
    arguments = decode(serde, payload)
    if not isinstance(arguments, dict):
        raise InvalidPayload("values of other jobs can only be filled into a payload that is an object")
    found = {entry.number: entry for entry in entries}
    size = sum(len(entry.value or b"") for entry in found.values())
    if size > MAX_FILLED:
        raise InvalidPayload(
            f"the values of other jobs have {size} bytes together, at most {MAX_FILLED} are allowed: take nodes.inputs"
        )
    for binding in bindings:
        numbers = binding.numbers(len(found))
        values = [_value(binding, found, number, codec) for number in numbers]
        value = values if binding.many else values[0]
        if binding.position is None:
            arguments[binding.argument] = value
        else:
            arguments[binding.argument][binding.position] = value
    return encode(serde, arguments, "payload")


def _value(binding: Binding, entries: Mapping[int, DependencyEntry], number: int, codec: Callable[[str], Codec]) -> Any:
    entry, taken = entries[number], binding.taken
    error = None if entry.end is End.COMPLETED or entry.value is None else JobError.decode(entry.value)
    shown = None if error is None else msgspec.to_builtins(error)
    if taken == "error":
        return shown or msgspec.to_builtins(JobError("JobCancelled", f"job {entry.id!r} was cancelled"))
    value = None
    if entry.end is End.COMPLETED and entry.value is not None:
        queue, id = binding.of or (entry.queue, entry.id)
        value = decode(codec(queue).result_for(id), entry.value)
    if taken == "result":
        return value
    return {"state": entry.end, "value": value, "error": shown}
