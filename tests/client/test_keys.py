"""`id_by`, `group_by` and `cost_by`: options of a handler or task that an enqueue reads from its payload."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from penstock import Entry, Job, Penstock, Worker
from penstock.client.answers import JobStatus
from penstock.storage.base import PutStatus
from penstock.testing import Clock


async def status_of(app: Penstock, id: str, queue: str = "q") -> JobStatus:
    status = await app.queue(queue).status(id)
    assert status is not None
    return status


async def test_a_task_is_unique_by_its_arguments(app: Penstock) -> None:
    """Calls with equal arguments are duplicates, and share a group."""

    @app.task(queue="q", id_by=("user",), group_by="user")
    async def task(user: int, x: int) -> None: ...

    first = await task.enqueue(user=7, x=1)
    second = await task.enqueue(7, x=2)
    assert (first.id, first.status, second.status) == ("user=7", PutStatus.QUEUED, PutStatus.DUPLICATE)
    assert (await status_of(app, "user=7")).group == "user=7"
    assert await task.enqueue(user=8, x=1)


async def test_a_function_gets_the_arguments_of_a_task(app: Penstock) -> None:
    """Functions take the task's own parameters, by position or name, and its defaults."""

    @app.task(
        queue="q",
        id_by=lambda tenant, text, tone: f"{tenant}/{tone}",
        group_by=lambda tenant, text, tone: None,
        cost_by=lambda tenant, text, tone: len(text) // 4,
    )
    async def ask(tenant: str, text: str, tone: str = "kind", job: Job | None = None) -> None: ...

    await ask.enqueue("acme", text="x" * 40)
    status = await status_of(app, "acme/kind")
    assert (status.group, status.cost) == (None, 10)
    await ask.enqueue("acme", "x", tone="dry")
    assert (await status_of(app, "acme/dry")).cost == 1


async def test_names_of_a_task_count_their_defaults(app: Penstock) -> None:
    """An argument that is left out has its default in the key."""

    @app.task(queue="q", id_by=("day", "user"), cost_by="price")
    async def task(user: int, day: str = "mon", price: int = 5) -> None: ...

    assert (await task.enqueue(1)).id == 'day="mon"&user=1'
    assert not await task.enqueue(1, "mon")
    assert (await status_of(app, 'day="mon"&user=1')).cost == 5


async def test_a_handler_reads_the_fields_of_its_payload(app: Penstock) -> None:
    """Of a mapping, a dataclass or a struct; a function gets the payload."""

    @dataclass
    class Point:
        x: int

    class Spot(msgspec.Struct):
        x: int

    @app.handler("q", id_by="x", cost_by=lambda payload: payload["x"] if isinstance(payload, dict) else 9)
    async def handle(payload: Any) -> None: ...

    assert [(await app.queue("q").enqueue(each)).id for each in ({"x": 1}, Point(2), Spot(3))] == ["x=1", "x=2", "x=3"]
    assert (await status_of(app, "x=3")).cost == 9


async def test_options_that_are_given_win(app: Penstock) -> None:
    """An option of the enqueue is not read from the payload."""

    @app.handler("q", id_by="x", group_by="x", cost_by="x")
    async def handle(payload: Any) -> None: ...

    await app.queue("q").enqueue({"x": 5}, id="mine", group="ours", cost=2)
    status = await status_of(app, "mine")
    assert (status.group, status.cost) == ("ours", 2)


async def test_every_way_to_enqueue_reads_the_keys(app: Penstock, clock: Clock) -> None:
    """`call`, `enqueue_many` with payloads and entries, and a follow-up job of a handler."""

    @app.handler("q", id_by="x", group_by="x", cost_by="x")
    async def handle(payload: Any) -> int:
        return payload["x"]

    @app.handler("q/first")
    async def first(payload: Any, job: Job) -> None:
        job.then("q", {"x": 4})

    many = await app.queue("q").enqueue_many([{"x": 1}, Entry({"x": 1}), Entry({"x": 2}, id="two")])
    assert [(each.id, bool(each)) for each in many] == [("x=1", True), ("x=1", False), ("two", True)]
    await app.queue("q/first").enqueue(1)
    await Worker(app).drain()
    assert (await status_of(app, "x=4")).cost == 4
    assert await app.queue("q").call({"x": 4}) == 4


async def test_windows_and_debounces_work_with_keys(app: Penstock) -> None:
    """An id that is read from the payload is an id for `window` and `debounce`."""

    @app.task(queue="q", id_by="user")
    async def task(user: int) -> None: ...

    assert (await task.options(window=60).enqueue(1)).id == "user=1"
    await task.options(debounce=5).enqueue(2)
    assert (await task.options(debounce=5).enqueue(2)).status is PutStatus.UPDATED


@pytest.mark.only("memory")
async def test_a_payload_without_the_field_is_an_error_that_names_the_option(app: Penstock) -> None:
    """Nothing is stored."""

    @app.handler("q", id_by="x")
    async def handle(payload: Any) -> None: ...

    @app.task(queue="t", cost_by="n")
    async def task(n: int) -> None: ...

    with pytest.raises(ValueError, match="id_by names 'x', which is not among the arguments"):
        await app.queue("q").enqueue({"y": 1})
    with pytest.raises(ValueError, match="id_by names 'x'"):
        await app.queue("q").enqueue_many([1])
    with pytest.raises(ValueError, match="cost_by: task"):
        await app.queue("t").enqueue([1])
    with pytest.raises(ValueError, match="cost_by"):
        await task.enqueue(-1)
    assert await app.queues() == []


@pytest.mark.only("memory")
def test_a_wrong_declaration_is_an_error(app: Penstock) -> None:
    """Options that name no argument, or nothing, are refused when the handler is declared."""

    async def function(a: int) -> None: ...

    with pytest.raises(ValueError, match="id_by names 'b', which is not among its arguments"):
        app.task(queue="q", id_by=("a", "b"))(function)
    with pytest.raises(ValueError, match="group_by must name at least one"):
        app.listen("q", function, group_by=())
    with pytest.raises(TypeError, match="cost_by"):
        app.listen("q", function, cost_by=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="failure_options: id_by"):
        app.listen("q", function, on_failure=lambda failure: None, failure_options={"id_by": "a"})
    assert app.handlers == {}
