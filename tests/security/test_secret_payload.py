"""Payloads of signed and encrypted queues that do not fit: no part of them is in an error, a log line or an event.

Each case has a type and a value that it refuses. The value holds a canary, which is searched in everything that a
program leaves behind: the records of the storage, log lines, events, exceptions and the output of commands.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime
import decimal
import enum
import logging
import traceback
import uuid
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypedDict

import msgspec
import pydantic
import pytest
import redis
from click.testing import CliRunner

from penstock import Encrypted, ErrorKind, Event, Failure, InvalidPayload, Job, Penstock, Serde, Signed, State, Worker
from penstock.cli import main
from penstock.model.formats import JsonSerde, RawSerde, mismatch
from penstock.model.serde import Place, decode, encode
from tests.servers import Server, Servers
from tests.support import new, new_namespace
from tests.unit.test_binding import Compressed

CANARY, NUMBER = "CANARY4111222233334444", 4111222233334444
KEY = Encrypted.new_key()
Meta = msgspec.Meta


class Color(enum.Enum):
    RED = "red"


class Size(enum.IntEnum):
    SMALL = 1


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    a: int = 0


class Cat(msgspec.Struct, tag="cat"):
    a: int = 0


class Dog(msgspec.Struct, tag="dog"):
    a: int = 0


class One(msgspec.Struct, tag=1):
    a: int = 0


class Two(msgspec.Struct, tag=2):
    a: int = 0


class Checked(msgspec.Struct):
    a: str

    def __post_init__(self) -> None:
        raise ValueError(f"{self.a} is not good - at `$.{self.a}`")


@dataclasses.dataclass
class Card:
    number: int

    def __post_init__(self) -> None:
        if self.number == NUMBER:
            raise ValueError(f"card {self.number} is unknown")


@dataclasses.dataclass
class Order:
    card: Card


class Options(TypedDict):
    kind: NotRequired[Literal["a", "b"]]


class Pair(NamedTuple):
    x: int
    y: int


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")
    kind: Literal["a", "b"] = "a"
    counts: dict[str, int] = {}
    name: str = ""

    @pydantic.field_validator("name")
    @classmethod
    def check(cls, value: str) -> str:
        if value:
            raise ValueError(f"{value} is not a name")
        return value


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"]


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]


class Owner(pydantic.BaseModel):
    pet: CatModel | DogModel = pydantic.Field(discriminator="kind")


#: The types, a value that each refuses, and a part of the reason that is shown.
CASES: dict[str, tuple[Any, Any, str]] = {
    "literal": (Literal["a"], CANARY, "Invalid enum value"),
    "literal number": (Literal[1], NUMBER, "Invalid enum value"),
    "literal key": (dict[Literal["a"], int], {CANARY: 1}, "Invalid enum value - at `key` in `$`"),
    "enum": (list[Color], ["red", CANARY], "Invalid enum value - at `$[1]`"),
    "enum number": (Size, NUMBER, "Invalid enum value"),
    "unknown field": (Strict, {CANARY: 1}, "Object contains unknown field"),
    "field like a path": (Strict, {f"x` - at `$.{CANARY}": 1}, "Object contains unknown field"),
    "enum like a path": (Color, f"x' - at `$.{CANARY}`", "Invalid enum value"),
    "tag": (Cat | Dog, {"type": CANARY}, "Invalid value - at `$.type`"),
    "tag number": (One | Two, {"type": NUMBER}, "Invalid value - at `$.type`"),
    "number": (dict[str, int], {CANARY: CANARY}, "Expected `int`, got `str` - at `$[...]`"),
    "text": (list[list[str]], [[], ["", NUMBER]], "Expected `str`, got `int` - at `$[1][1]`"),
    "key": (dict[int, int], {CANARY: 1}, "Expected `int`, got `str` - at `key` in `$`"),
    "bound": (Annotated[int, Meta(le=5)], NUMBER, "Expected `int` <= 5"),
    "pattern": (Annotated[str, Meta(pattern="^x$")], CANARY, "Expected `str` matching regex '^x$'"),
    "too long": (Annotated[str, Meta(max_length=2)], CANARY, "Expected `str` of length <= 2"),
    "datetime": (datetime.datetime, CANARY, "Invalid RFC3339 encoded datetime"),
    "duration": (datetime.timedelta, CANARY, "Invalid ISO8601 duration"),
    "uuid": (uuid.UUID, CANARY, "Invalid UUID"),
    "decimal": (decimal.Decimal, CANARY, "Invalid decimal string"),
    "base64": (bytes, f"{CANARY}!", "Invalid base64 encoded string"),
    "check of a struct": (Checked, {"a": CANARY}, "refused with a ValueError"),
    "check of a dataclass": (Order, {"card": {"number": NUMBER}}, "refused with a ValueError - at `$.card`"),
    "typed dict": (Options, {"kind": CANARY}, "Invalid enum value - at `$.kind`"),
    "named tuple": (Pair, [1, CANARY], "Expected `int`, got `str` - at `$[1]`"),
    "model": (Model, {"kind": CANARY, "counts": {CANARY: CANARY}}, "counts: int_parsing; kind: literal_error"),
    "extra of a model": (Model, {CANARY: 1}, "value: extra_forbidden"),
    "check of a model": (Model, {"name": CANARY}, "name: value_error"),
    "tag of a model": (Owner, {"pet": {"kind": CANARY}}, "pet: union_tag_invalid"),
    "models": (list[Model], [{"name": CANARY}], "name: value_error - at `$[0]`"),
    "perhaps a model": (dict[str, Model | int], {CANARY: {"kind": CANARY}}, "value: int_type; value: literal_error"),
}


class Verbose:
    """A serde of a user whose errors quote the value."""

    def __repr__(self) -> str:
        return "Verbose()"

    def dumps(self, value: Any, /) -> bytes:
        if value == "refuse":
            raise InvalidPayload(f"{CANARY} cannot be written")
        return str(value).encode()

    def loads(self, data: bytes, type: Any, /) -> Any:
        raise KeyError(data.decode())


# what is left behind -----------------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'jobs.db'}"
    server = servers.get("redis")
    assert isinstance(server, Server)
    return f"redis://{server.address}/0"


def stored_texts(url: str, namespace: str) -> Iterator[str]:
    """Yield everything that a storage holds: the file with its log, or the values of all keys of the namespace."""
    if url.startswith("sqlite:"):
        path = Path(url.removeprefix("sqlite:"))
        for each in path.parent.glob(f"{path.name}*"):
            yield each.read_bytes().decode("latin-1")
        return
    with redis.Redis.from_url(url) as server:
        reads: dict[bytes | str, Callable[[bytes], Any]] = {
            b"string": server.get,
            b"hash": server.hgetall,
            b"list": lambda key: server.lrange(key, 0, -1),
            b"set": server.smembers,
            b"zset": lambda key: server.zrange(key, 0, -1),
        }
        keys = [key for key in server.scan_iter("*", count=1000) if namespace.encode() in key]
        assert keys
        for key in keys:
            yield repr(key) + repr(reads[server.type(key)](key))


def chain_of(error: BaseException) -> Iterator[str]:
    """Yield the texts of an exception and of all before it, with the locals of the frames that decode."""
    seen: list[BaseException | None] = [error]
    for each in seen:
        if each is not None:
            yield f"{each!r} {each.args} {vars(each)}"
            seen += [each.__cause__, each.__context__]
            for frame, _ in traceback.walk_tb(each.__traceback__):
                if frame.f_code.co_filename.endswith(("model/serde.py", "model/encryption.py", "model/formats.py")):
                    yield repr(frame.f_locals)


def assert_hidden(texts: Iterator[str] | list[str]) -> None:
    for text in texts:
        assert CANARY not in text
        assert str(NUMBER) not in text


@contextlib.asynccontextmanager
async def recorded(app: Penstock, found: list[Event]) -> AsyncGenerator[None]:
    """Add the events of the stream during the block to a list."""
    async with app.events() as stream:
        yield
        await app.queue("mark").enqueue(0, id="mark")
        async for event in stream:
            if event.queue == "mark":
                return
            found.append(event)


# the tests ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Signed, Encrypted])
async def test_a_payload_that_does_not_fit_is_not_quoted(
    kind: type[Any], url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Jobs of every case fail without a call; errors, logs, events and commands show the reason, not the value.

    Nor does the storage, if they are encrypted.
    """
    caplog.set_level(logging.DEBUG, "penstock")
    namespace = new_namespace()
    app = Penstock(url, namespace=namespace, serde=kind("json", KEY))
    app.log_events(level=logging.INFO)
    failures: list[Failure] = []
    events: list[Event] = []
    for name, (type_, _, _) in CASES.items():
        app.listen(name, handler_of(type_), on_failure=failures.append)
    async with app:
        async with recorded(app, events):
            for name, (_, value, _) in CASES.items():
                await app.queue(name).enqueue(value, id="a")
            await Worker(app).drain()
        for name, (_, value, reason) in CASES.items():
            status = await app.queue(name).status("a")
            assert status is not None
            assert status.error is not None
            assert (status.state, status.payload) == (State.FAILED, value)
            assert (status.error.type, status.error.kind) == ("InvalidPayload", ErrorKind.PERMANENT)
            assert status.error.message.endswith(f"bytes are not JSON of the expected type: {reason}"), name
            assert_hidden([status.error.message, status.error.traceback])
        assert len(failures) == len(CASES)
        assert sum(event.name == "failed" for event in events) == len(CASES)
        assert any(event.name == "invalid_data" for event in events)
        assert_hidden([repr(event) for event in events])
        assert_hidden([repr(failure.error) for failure in failures])
        assert "Invalid enum value" in caplog.text
        assert_hidden([caplog.text, *(repr(vars(record)) for record in caplog.records)])
        if kind is Encrypted:
            assert_hidden(stored_texts(url, namespace))
            assert_hidden(await asyncio.to_thread(list, command_outputs(url, namespace)))
        else:
            assert any(CANARY in text for text in stored_texts(url, namespace))
        for name in await app.queues():
            await app.queue(name).delete()


def handler_of(type_: Any) -> Callable[[Any], None]:
    def handle(payload: Any) -> None:
        raise AssertionError("it was called")

    handle.__annotations__ = {"payload": type_}
    return handle


def command_outputs(url: str, namespace: str) -> Iterator[str]:
    """Yield the output of the commands that show jobs."""
    for command in (
        ["job", "show", "literal", "a"],
        ["job", "show", "literal", "a", "--json"],
        ["job", "ls", "enum"],
        ["export"],
    ):
        result = CliRunner().invoke(main, [*command, "--url", url, "--namespace", namespace])
        assert result.exit_code == 0, result.output
        yield result.output


@pytest.mark.parametrize("serde", [Signed("json", KEY), Encrypted("json", KEY), Compressed(JsonSerde())])
@pytest.mark.parametrize("name", CASES)
def test_no_exception_of_a_decoder_holds_a_value(serde: Serde, name: str) -> None:
    """Neither the error, nor one before it, nor a local variable of its frames holds the value in clear."""
    type_, value, reason = CASES[name]
    data = serde.dumps(value)
    with pytest.raises(InvalidPayload) as raised:
        decode(serde, data, type_)
    assert str(raised.value).endswith(reason)
    if isinstance(serde, Encrypted):
        assert_hidden(chain_of(raised.value))
    assert raised.value.__cause__ is None
    assert raised.value.__context__ is None
    assert_hidden([repr(raised.value)])


@pytest.mark.parametrize("kind", [Signed, Encrypted])
def test_bytes_that_are_not_of_the_format_are_not_quoted(kind: type[Any]) -> None:
    """Text that is no JSON, msgpack or UTF-8, and an error of a user's serde, are described without their bytes."""
    raw = kind("raw", KEY)
    for serde, body, type_ in (
        ("json", CANARY.encode(), Any),
        ("json", f'{{"{CANARY}": '.encode(), Any),
        ("json", b'"' + CANARY.encode() + b'\xff"', Any),
        ("msgpack", b"\xc1" + CANARY.encode(), Any),
        ("raw", CANARY.encode() + b"\xff", str),
        (Verbose(), CANARY.encode(), Any),
        (Compressed(Verbose()), Compressed(RawSerde()).dumps(CANARY.encode()), Any),
    ):
        data = raw.dumps(body)
        with pytest.raises(InvalidPayload) as raised:
            decode(kind(serde, KEY), data, type_)
        assert_hidden([repr(raised.value), repr(vars(raised.value))])
        assert raised.value.__context__ is None
        with pytest.raises(InvalidPayload) as raised:
            kind(serde, KEY).loads(data, type_)
        assert_hidden([repr(raised.value)])
        assert raised.value.__context__ is None


@pytest.mark.parametrize("kind", [Signed, Encrypted])
def test_values_that_cannot_be_encoded_are_not_quoted(kind: type[Any]) -> None:
    """An error at enqueue, or of a result, names the class that has no encoding, or the class of the error."""

    class Loud(pydantic.BaseModel):
        name: str

        @pydantic.field_serializer("name")
        def show(self, value: str) -> str:
            raise ValueError(f"{value} is not shown")

    for serde, value, reason in (
        ("json", {CANARY: iter([CANARY])}, "objects of type list_iterator are not supported"),
        ("json", {CANARY: {None: 1}}, "objects of type NoneType are not supported"),
        ("json", [f"{CANARY}\ud800"], "UnicodeEncodeError"),
        ("json", [CANARY, float("nan")], "which has no nan; send None or use msgpack"),
        ("json", [CANARY, b""], 'use serde="msgpack", serde="raw" or base64 text'),
        ("json", Loud(name=CANARY), "PydanticSerializationError"),
        ("msgpack", [CANARY, 2**70], "can't serialize ints < -2**63 or > 2**64 - 1"),
        ("raw", [CANARY], "must be bytes or str with the raw serde, not list"),
        ("raw", f"{CANARY}\ud800", "cannot be encoded as UTF-8"),
        (Verbose(), "refuse", "cannot be encoded by Verbose(): InvalidPayload"),
    ):
        with pytest.raises(InvalidPayload) as raised:
            encode(kind(serde, KEY), value, "payload")
        assert str(raised.value).startswith("payload ")
        assert str(raised.value).endswith(reason)
        assert raised.value.__context__ is None
        assert_hidden([repr(raised.value), repr(vars(raised.value))])
        with pytest.raises(InvalidPayload) as raised:
            kind(serde, KEY).dumps(value)
        assert_hidden([repr(raised.value)])
        assert raised.value.__context__ is None


@pytest.mark.parametrize("kind", [Signed, Encrypted])
async def test_arguments_results_and_reservations_are_not_quoted(
    kind: type[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """A task's wrong argument, a result without an encoding, and a reservation that is refused show no value."""
    caplog.set_level(logging.DEBUG, "penstock")
    app = Penstock("memory:", serde=kind("json", KEY))

    @app.task
    async def pay(color: Literal["red"], counts: dict[str, int], job: Job | None = None) -> list[Any]:
        return [CANARY, object()]

    with pytest.raises(TypeError, match=r"color: invalid enum value$") as refused:
        await pay.enqueue(CANARY, {})  # type: ignore[arg-type]
    assert_hidden([str(refused.value)])
    with pytest.raises(TypeError, match=r"counts\[\.\.\.\]: expected int, got str$") as refused:
        await pay.enqueue("red", {CANARY: CANARY})  # type: ignore[dict-item]
    assert_hidden([str(refused.value)])
    assert mismatch(kind("json", KEY), CANARY, Literal["a"]) == ": invalid enum value"
    app.listen("q", handler_of(Literal["a"]))
    async with app:
        await pay.enqueue(
            "red",
            {},
        )
        await app.queue("q").enqueue(CANARY, id="a")
        assert await app.queue("q").reserve() == []
        await Worker(app).drain()
        [failed] = await app.queue("pay").find("failed")
        refused_one = await app.queue("q").status("a")
        assert refused_one is not None
        for status in (failed, refused_one):
            assert status.error is not None
            assert_hidden([repr(status.error)])
        assert failed.error is not None
        assert failed.error.message == "result cannot be encoded as JSON: objects of type object are not supported"
    assert_hidden([caplog.text])


async def test_unknown_arguments_in_a_payload_of_a_users_serde_are_not_quoted() -> None:
    """A mapping that a user's serde gives instead of the declared type may hold other names; they are not shown."""

    class Loose:
        def dumps(self, value: Any, /) -> bytes:
            return msgspec.json.encode(value)

        def loads(self, data: bytes, type: Any, /) -> Any:
            return msgspec.json.decode(data)

    app = Penstock("memory:", serde=Encrypted(Loose(), KEY))

    @app.task
    async def pay(a: int) -> None: ...

    place = Place("penstock", "pay", "payload")
    async with app:
        await app.storage.put([new("pay", "a", Encrypted("json", KEY).bound(place).dumps({CANARY: 1}))])
        await Worker(app).drain()
        status = await app.queue("pay").status("a")
    assert status is not None
    assert status.error is not None
    assert status.error.message == "pay(): the payload has an argument that the function does not have"
    assert_hidden([repr(status.error)])
