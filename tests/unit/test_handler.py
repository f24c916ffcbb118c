"""Functions as handlers: the signatures that are accepted, and the arguments they get."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from penstock import HandlerOptions, Job
from penstock.model.handler import Handler, load_function, read_signature
from penstock.model.ids import fail_queue_of

if TYPE_CHECKING:
    from decimal import Decimal


@dataclass
class Order:
    number: int


async def one(payload: Order) -> None: ...
async def two(payload: Order, job: Job) -> None: ...
def sync(payload: dict[str, int], job: Job) -> None: ...
def bare(payload): ...  # type: ignore[no-untyped-def]
def with_default(payload: int, factor: int = 2) -> None: ...
def optional_job(payload: int, job: Any = None) -> None: ...
def hidden_job(payload: int, job: Decimal) -> None: ...
def hidden_payload(payload: Decimal) -> None: ...
def batch(payloads: list[Order], jobs: list[Job]) -> None: ...
def nothing() -> None: ...
def three(payload: int, job: Job, more: int) -> None: ...
def keyword(payload: int, *, more: int) -> None: ...
async def stream(payload: int) -> AsyncIterator[int]:
    yield payload


class CallableObject:
    async def __call__(self, payload: int) -> None: ...


@pytest.mark.parametrize(
    ("function", "payload", "takes_job", "is_async"),
    [
        (one, Order, False, True),
        (two, Order, True, True),
        (sync, dict[str, int], True, False),
        (bare, Any, False, False),
        (with_default, int, False, False),
        (optional_job, int, True, False),
        (hidden_job, int, True, False),
        (CallableObject(), int, False, True),
        (functools.partial(three, more=1), int, True, False),
    ],
)
def test_a_signature_is_read(function: Callable[..., Any], payload: Any, takes_job: bool, is_async: bool) -> None:
    """The payload's type, the wish for the job and async-ness come from the signature."""
    assert read_signature(function, batch=False) == (payload, takes_job, is_async)


def test_a_batch_handlers_items_are_typed() -> None:
    """A batch handler annotates lists, and its payloads are decoded to their items."""
    assert read_signature(batch, batch=True).payload is Order
    assert read_signature(bare, batch=True).payload is Any
    with pytest.raises(TypeError, match="list"):
        read_signature(one, batch=True)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (nothing, "it takes no argument"),
        (three, "there is no value for its 'more'"),
        (keyword, "there is no value for its 'more'"),
        (stream, "must not yield"),
        (hidden_payload, "cannot be resolved"),
        (5, "must be a function"),
    ],
)
def test_a_bad_signature_is_refused_with_advice(function: Any, message: str) -> None:
    """A function that cannot be a handler is refused when it is declared, with the reason."""
    with pytest.raises(TypeError, match=message):
        read_signature(function, batch=False)


def test_a_handler_by_path_is_loaded_when_needed() -> None:
    """A path is only checked for its form until the function is used."""
    handler = Handler("q", "tests.unit.test_handler:two", HandlerOptions())
    assert not handler.loaded
    assert handler.function is two
    assert handler.signature.takes_job
    with pytest.raises(ValueError, match="module:function"):
        Handler("q", "no-colon", HandlerOptions())


def test_a_path_to_a_missing_function_names_the_missing_part() -> None:
    """The import error names the part that is missing."""
    with pytest.raises(ImportError, match="'missing'"):
        load_function("tests.unit.test_handler:missing")
    with pytest.raises(ImportError, match="no_such_module"):
        load_function("no_such_module:f")
    with pytest.raises(TypeError, match="must be a function"):
        load_function("tests.unit.test_handler:TYPE_CHECKING")


def test_fail_queues_stay_within_the_length_of_names() -> None:
    """The fail queue is in the same family; a name too long for the suffix gets a digest."""
    assert fail_queue_of("mail") == "mail/failures"
    assert fail_queue_of("x" * 503).startswith("x")
    long = fail_queue_of("x" * 504)
    assert len(long.encode()) <= 512
    assert long.endswith("/failures")
    assert long != fail_queue_of("y" * 504)
