"""The types that an annotation may name: a value comes back as it was sent."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum
from subprocess import run
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from penstock import InvalidPayload
from penstock.model.formats import JsonSerde, MsgpackSerde, check_type
from penstock.model.serde import Serde

T = TypeVar("T")


class Color(Enum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


class Size(TypedDict):
    width: int


class Pair(NamedTuple):
    left: int
    right: str


class Struct(msgspec.Struct):
    at: datetime
    tags: set[str] = set()


@attrs.define
class Attrs:
    price: Decimal


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="forbid")

    when: datetime
    price: Decimal = Decimal(0)
    color: Color = Color.RED
    named: int = pydantic.Field(default=1, alias="Named")
    only_in: int = pydantic.Field(default=1, validation_alias="OnlyIn")
    parsed: pydantic.Json[list[int]] = pydantic.Field(default_factory=list)

    @pydantic.computed_field
    @property
    def double(self) -> int:
        return self.named * 2


class Other(pydantic.BaseModel):
    other: int


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)

    id: UUID


class Box(pydantic.BaseModel, Generic[T]):
    item: T


class Names(pydantic.RootModel[list[str]]):
    pass


@dataclass
class Order:
    id: UUID
    model: Model
    models: list[Model] = field(default_factory=list)


NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
ID = UUID(int=7)
MODEL = Model(when=NOW, price=Decimal("1.10"), Named=3, OnlyIn=4, parsed="[1]")  # type: ignore[arg-type]


@pytest.fixture(params=[JsonSerde(), MsgpackSerde()], ids=["json", "msgpack"])
def serde(request: pytest.FixtureRequest) -> Serde:
    return request.param


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (Color, Color.RED),
        (Level, Level.HIGH),
        (Size, {"width": 1}),
        (Pair, Pair(1, "a")),
        (Struct, Struct(NOW, {"a"})),
        (Attrs, Attrs(Decimal("0.10"))),
        (datetime, NOW),
        (datetime, datetime(2030, 1, 1)),
        (date, date(2030, 1, 1)),
        (time, time(1, 2)),
        (timedelta, timedelta(days=1, seconds=1.5)),
        (UUID, ID),
        (Decimal, Decimal("1.100")),
        (set[int], {1, 2}),
        (frozenset[int], frozenset({1})),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2)),
        (dict[int, UUID], {1: ID}),
        (dict[date, int], {date(2030, 1, 1): 1}),
        (Literal["a", 1], "a"),
        (int | None, None),
        (list[Struct | None], [None, Struct(NOW)]),
        (Model, MODEL),
        (Model | None, MODEL),
        (list[Model], [MODEL]),
        (dict[str, Model], {"a": MODEL}),
        (Model | Other, Other(other=1)),
        (list[Other | int], [1, Other(other=1)]),
        (Order, Order(ID, MODEL, [MODEL])),
        (list[Order], [Order(ID, MODEL)]),
        (Strict, Strict(id=ID)),
        (list[Strict], [Strict(id=ID)]),
        (Box[Other], Box[Other](item=Other(other=1))),
        (Names, Names(["a"])),
    ],
    ids=str,
)
def test_what_comes_back_is_what_was_sent(serde: Serde, type: Any, value: Any) -> None:
    """Every type that an annotation may name survives, alone or inside another, and is accepted when declared."""
    check_type(serde, type)
    assert serde.loads(serde.dumps(value), type) == value


def test_models_come_from_other_producers_too() -> None:
    """A plain object that a model accepts becomes one, by alias or by name."""
    assert JsonSerde().loads(b'{"when": "2030-01-01T12:00:00Z", "Named": 5}', Model).named == 5
    assert JsonSerde().loads(b'{"when": "2030-01-01T12:00:00Z", "named": 5}', Model).named == 5


@pytest.mark.parametrize("type", [Model, list[Model], Model | Other, Order, dict[str, Order]])
def test_what_a_model_refuses_is_an_invalid_payload_that_shows_no_values(serde: Serde, type: Any) -> None:
    """The message names the error and the field, but not the value."""
    for value in ({"when": "secret"}, [{"when": "secret"}], {"a": {"id": str(ID), "model": {"when": "secret"}}}):
        with pytest.raises(InvalidPayload) as refused:
            serde.loads(serde.dumps(value), type)
        assert "secret" not in str(refused.value)
        assert "secret" not in str(refused.value.__cause__)


def test_constraints_hold(serde: Serde) -> None:
    """Constraints in an annotation are checked as well as the type."""
    positive = Annotated[int, msgspec.Meta(gt=0)]
    assert serde.loads(serde.dumps([1]), list[positive]) == [1]  # type: ignore[valid-type]
    with pytest.raises(InvalidPayload):
        serde.loads(serde.dumps([0]), list[positive])  # type: ignore[valid-type]


@pytest.mark.parametrize("type", [complex, list[complex], dict[str, list[complex]], tuple[complex, int]])
def test_an_unknown_type_is_refused_at_any_depth(serde: Serde, type: Any) -> None:
    """An annotation that can never be decoded is found when the handler is declared."""
    with pytest.raises(TypeError, match="complex"):
        check_type(serde, type)


@dataclass
class Node:
    next: Node | None = None


def test_types_that_mention_themselves_are_fine(serde: Serde) -> None:
    """A recursive type is decoded and checked like any other."""
    check_type(serde, Node)
    assert serde.loads(serde.dumps(Node(Node())), Node) == Node(Node())


@dataclass
class Holder:
    value: Any


@pytest.mark.parametrize("wrap", [Holder, lambda value: Order(ID, MODEL, [value]), lambda value: ({"a": [value]},)])
@pytest.mark.parametrize("value", [b"x", float("nan")])
def test_json_refuses_what_would_change_inside_objects_too(wrap: Any, value: Any) -> None:
    """Bytes and NaN are found in the fields of dataclasses as well."""
    with pytest.raises(InvalidPayload, match="JSON"):
        JsonSerde().dumps(wrap(value))


def test_json_refuses_a_value_that_holds_itself() -> None:
    """Endless nesting ends in an exception, not in an endless loop."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidPayload):
        JsonSerde().dumps(endless)


class Float(pydantic.BaseModel):
    value: float


def test_a_model_with_nan_is_refused() -> None:
    """JSON would turn it into null, which the model would not take back."""
    with pytest.raises(InvalidPayload, match="nan"):
        JsonSerde().dumps(Float(value=float("nan")))


def test_pydantic_is_not_imported_unasked() -> None:
    """A program without Pydantic models does not pay for them."""
    code = (
        "import sys, penstock.model.formats as s; j = s.JsonSerde(); s.check_type(j, list[int])\n"
        "j.loads(j.dumps([1]), list[int])\n"
        "sys.exit('pydantic' in sys.modules or 'cryptography' in sys.modules)"
    )
    assert run([sys.executable, "-c", code], check=False).returncode == 0
