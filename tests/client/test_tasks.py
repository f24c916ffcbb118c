"""Tasks: functions called with ordinary arguments, here or by a worker."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import IntEnum, StrEnum
from typing import Any, TypedDict, Unpack

import pytest
from pydantic import BaseModel

from penstock import (
    CallTimeout,
    Encrypted,
    Failure,
    InvalidPayload,
    Job,
    JobFailed,
    JobNotFound,
    Penstock,
    Signed,
    State,
    Task,
    Worker,
)
from penstock.model.handler import load_function
from penstock.sync import Penstock as SyncPenstock
from tests.support import new

KEY = Encrypted.new_key()


@dataclass
class Point:
    x: int
    y: int = 0


class Colors(TypedDict, total=False):
    line: str
    fill: str


async def add(a: int, b: int = 10) -> int:
    """Add two numbers."""
    return a + b


def move(point: Point, by: timedelta, *more: Point, job: Job, **colors: Unpack[Colors]) -> Point:
    assert isinstance(by, timedelta)
    assert all(isinstance(each, Point) for each in more)
    assert job.attempt == 1
    return Point(point.x + len(more), len(colors))


def only(a: int, b: int = 2, /, c: int = 3) -> list[int]:
    return [a, b, c]


async def run_of(app: Penstock, task: Task[..., Any, Any], id: str) -> Any:
    await Worker(app).drain()
    return await task.result(id)


async def test_a_task_is_enqueued_and_run(app: Penstock) -> None:
    """The payload is an object of the arguments by name, and defaults are the run's to fill in."""
    task = app.task(add)
    answer = await task.enqueue(1)
    assert answer.status == "queued"
    status = await task.queue.status(answer.id)
    assert status is not None
    assert (status.queue, status.payload) == ("add", {"a": 1})
    assert await run_of(app, task, answer.id) == 11


async def test_a_call_gives_the_result(app: Penstock) -> None:
    """`call` enqueues, waits, and gives a value of the type that the function returns."""
    adding, moving = app.task(add), app.task(move)
    async with Worker(app):
        assert await adding.call(1, b=2) == 3
        moved = await moving.call(Point(1), timedelta(hours=1), Point(2), Point(3), line="red")  # type: ignore[call-arg]
        assert moved == Point(3, 1)


async def test_a_call_fails_as_its_job_does(app: Penstock) -> None:
    """An exception of the function is a JobFailed of the caller."""

    @app.task(max_retries=0)
    def fail(text: str) -> None:
        raise ValueError(text)

    async with Worker(app):
        with pytest.raises(JobFailed, match="ValueError: no"):
            await fail.call("no")


async def test_the_timeout_of_a_call_is_an_option(app: Penstock) -> None:
    """`options(timeout=...)` bounds the wait of the caller, not the run; no worker runs this one."""
    task = app.task(add)
    with pytest.raises(CallTimeout):
        await task.options(timeout=0, id="a", run_timeout=5).call(1, 2)
    assert (await task.queue.counts())[State.QUEUED] == 1


async def test_a_job_that_was_enqueued_can_be_waited_for(app: Penstock) -> None:
    """`wait` and `result` give the function's type; without a job there is a reason, or the default."""
    task = app.task(move)
    await task.options(id="a").enqueue(Point(1), timedelta(1))  # type: ignore[call-arg]
    async with Worker(app):
        assert await task.wait("a", timeout=10) == Point(1)
    assert await task.result("a") == Point(1)
    with pytest.raises(JobNotFound):
        await task.result("b")
    assert await task.result("b", default=None) is None


async def test_a_task_is_still_a_function(app: Penstock) -> None:
    """Calling it runs it here, sync or async, and its name, text and signature are the function's."""
    task = app.task(add)
    assert await task(1, b=2) == 3
    assert app.task(only)(1) == [1, 2, 3]
    assert (task.__name__, task.__doc__, task.name) == ("add", "Add two numbers.", "add")
    assert inspect.signature(task) == inspect.signature(add)
    assert repr(task) == "<Task 'add'>"


async def test_options_hold_for_the_calls_behind_them(app: Penstock) -> None:
    """Options are those of enqueue, may be added up, and leave the task itself alone."""
    task = app.task(add)
    later = task.options(delay=60, headers={"k": "v"}, max_attempts=2)
    answer = await later.options(id="a", delay=120).enqueue(1, b=2)
    assert (answer.id, answer.status) == ("a", "scheduled")
    status = await task.queue.status("a")
    assert status is not None
    assert (status.headers, status.run_at - status.created_at) == ({"k": "v"}, timedelta(seconds=120))
    assert (await task.enqueue(1)).status == "queued"
    assert repr(later) == "<TaskCall of 'add' with delay, headers, max_attempts>"
    with pytest.raises(TypeError, match="unknown option 'dela'"):
        task.options(dela=1)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="delay"):
        await task.options(delay=-1).enqueue(1)


async def test_the_runs_own_timeout_is_an_option(app: Penstock) -> None:
    """`run_timeout` is what `timeout` is for a queue."""
    task = app.task(add)
    assert task.options(run_timeout=5, timeout=1).entry(1).timeout == 5
    assert task.options(run_timeout=None).entry(1).timeout is None


async def test_many_calls_at_once(app: Penstock) -> None:
    """Tuples, entries, iterators and async iterators of calls are one round trip each."""
    task = app.task(add)

    async def calls() -> AsyncIterator[tuple[int]]:
        yield (5,)

    answers = await task.enqueue_many([(1,), (1, 2), task.entry(3, b=4), task.options(id="x").entry(5)])
    answers += await task.options(priority=1).enqueue_many((n,) for n in range(2))
    answers += await task.enqueue_many(calls())
    await Worker(app).drain()
    assert [await task.result(answer.id) for answer in answers] == [11, 3, 7, 15, 10, 11, 15]
    assert answers[3].id == "x"
    for bad in ([1], "ab", [{"a": 1}]):
        with pytest.raises(TypeError, match="tuple of arguments"):
            await task.enqueue_many(bad)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="list or an iterator"):
        await task.enqueue_many(5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="too many"):
        await task.enqueue_many([(1,), (1, 2, 3)])
    assert (await task.queue.counts())[State.QUEUED] == 0


def both(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((), {}, "add.*'a'"),
        ((1,), {"c": 1}, "add.*'c'"),
        ((1, 2, 3), {}, "too many positional"),
        ((1,), {"a": 1}, "'a'"),
    ],
)
async def test_wrong_arguments_are_refused_at_the_call(app: Penstock, args: Any, kwargs: Any, message: str) -> None:
    """A TypeError names the parameter, and nothing is stored."""
    task = app.task(add)
    for ask in (task.enqueue, task.call):
        with pytest.raises(TypeError, match=message):
            await ask(*args, **kwargs)
    assert await app.queues() == []


async def test_positional_only_parameters_work(app: Penstock) -> None:
    """They cannot be given by name here, and are found by name in the payload."""
    task = app.task(only)
    with pytest.raises(TypeError, match="'a'"):
        task.payload(a=1)  # type: ignore[call-arg]
    answer = await task.enqueue(1, c=5)
    await task.queue.enqueue({"a": 1, "c": 7}, id="skips b")
    assert await run_of(app, task, answer.id) == [1, 2, 5]
    assert await task.result("skips b") == [1, 2, 7]


async def test_the_running_job_is_given_where_it_is_asked_for(app: Penstock) -> None:
    """A parameter annotated Job is no argument, wherever it stands, and needs no default."""

    @app.task
    def first(job: Job, name: str) -> str:
        return f"{name} {job.id}"

    @app.task
    async def optional(name: str, job: Job | None = None) -> str:
        assert job is not None
        return f"{name} {job.id}"

    await first.options(id="a").enqueue("x")  # type: ignore[call-arg]
    await optional.options(id="b").enqueue("y")
    await Worker(app).drain()
    assert (await first.result("a"), await optional.result("b")) == ("x a", "y b")
    with pytest.raises(TypeError, match="'job' is the running job"):
        await optional.enqueue("z", job=None)


@pytest.mark.parametrize(
    "data", [b"{}", b'{"a": "one"}', b'{"a": 1, "c": 2}', b"[1, 2]", b"null", b'{"a": null}', b"{"]
)
async def test_a_payload_that_is_no_call_is_not_run(app: Penstock, data: bytes) -> None:
    """Missing, unknown and ill-typed arguments fail as permanent, with an event."""
    invalid: list[str] = []
    app.on("invalid_data")(lambda event: invalid.append(event.id))
    task = app.task(add)
    await app.storage.put([new("add", "a", data)])
    await Worker(app).drain()
    status = await task.queue.status("a")
    assert status is not None
    assert status.error is not None
    assert (status.state, status.error.kind, status.attempts, invalid) == (State.FAILED, "permanent", 1, ["a"])


@pytest.mark.parametrize("serde", ["msgpack", Signed("json", KEY), Encrypted("msgpack", KEY)])
async def test_a_task_works_with_any_serde_that_has_objects(app: Penstock, serde: Any) -> None:
    """Arguments and results go through the queue's serdes, and come back typed."""
    task = app.task(queue="moves", serde=serde, result_serde="json")(move)
    answer = await task.enqueue(Point(1), timedelta(1))  # type: ignore[call-arg]
    assert task.queue.name == "moves"
    assert await run_of(app, task, answer.id) == Point(1)


async def test_a_task_works_with_a_serde_without_types(app: Penstock) -> None:
    """One that gives mappings whatever it is asked for is understood, and checked."""

    class Eval:
        def dumps(self, value: Any, /) -> bytes:
            return repr(value).encode()

        def loads(self, data: bytes, type: Any, /) -> Any:
            return eval(data)

    task = app.task(serde=Eval())(add)
    await task.options(id="a").enqueue(1)
    for id, data in (("b", b"{'c': 1}"), ("c", b"{}"), ("d", b"5")):
        await app.storage.put([new("add", id, data)])
    assert await run_of(app, task, "a") == 11
    for id in "bcd":
        with pytest.raises(JobFailed, match="PermanentError"):
            await task.result(id)


async def test_a_result_of_another_type_is_refused(app: Penstock) -> None:
    """A function that does not keep to its annotation is found out by who asked for its result."""

    @app.task
    def lie() -> datetime:
        return "never"  # type: ignore[return-value]

    answer = await lie.enqueue()
    await Worker(app).drain()
    with pytest.raises(InvalidPayload):
        await lie.result(answer.id)
    assert await lie.queue.result(answer.id) == "never"


async def test_a_failed_task_has_its_arguments(app: Penstock) -> None:
    """The fail handler of a task finds them as attributes of the payload."""
    found: list[Any] = []

    def on_failure(failure: Failure) -> None:
        found.append(failure.payload)

    @app.task(on_failure=on_failure, max_retries=0)
    def fail(point: Point) -> None:
        raise ValueError("no")

    await fail.enqueue(Point(3))
    await Worker(app).drain()
    assert [payload.point for payload in found] == [Point(3)]


async def test_a_follow_up_may_be_a_task(app: Penstock) -> None:
    """`payload` gives what `job.then` needs."""
    adding = app.task(queue="sums/add")(add)

    @app.task(queue="sums/start")
    def start(a: int, job: Job | None = None) -> None:
        assert job is not None
        job.then(adding.queue.name, adding.payload(a, b=1), id="next")

    await start.enqueue(4)
    assert await run_of(app, adding, "next") == 5


# declaring ---------------------------------------------------------------------------------------


class Greeter:
    def greet(self, name: str) -> None: ...


def numbers() -> Iterator[int]:
    yield 1


async def stream() -> AsyncIterator[int]:
    yield 1


def unknown_type(a: complex) -> None: ...
def unknown_result(a: int) -> complex: ...
def many_jobs(*jobs: Job) -> None: ...


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, "lambda"),
        (Greeter.greet, "is in a class"),
        (Greeter().greet, "function made by def, not method"),
        (Greeter, "function made by def, not type"),
        (print, "function made by def"),
        (5, "function made by def, not int"),
        (numbers, "must not yield"),
        (stream, "must not yield"),
        (unknown_type, "an annotation cannot be decoded"),
        (unknown_result, "result's annotation cannot be decoded"),
        (many_jobs, "there is one job"),
    ],
)
def test_what_cannot_be_a_task_is_refused(function: Callable[..., Any], message: str) -> None:
    """The message gives the reason when the task is declared, and no handler is registered."""
    app = Penstock("memory:")
    with pytest.raises(TypeError, match=message):
        app.task(function)
    assert app.handlers == {}


def test_a_task_and_a_handler_share_no_queue() -> None:
    """Two for one queue are an error when the second is declared."""
    app = Penstock("memory:")
    app.task(add)
    with pytest.raises(ValueError, match=r"'add' has a handler already \(add\)"):
        app.task(add)
    with pytest.raises(ValueError, match="'add' has a handler already"):
        app.listen("add", lambda payload: None)
    app.listen("only", lambda payload: None)
    with pytest.raises(ValueError, match="'only' has a handler already"):
        app.task(only)
    assert app.task(queue="other")(add).queue.name == "other"


def test_options_that_make_no_sense_are_refused() -> None:
    """A task is one call, its arguments are an object, and options have names."""
    app = Penstock("memory:")
    with pytest.raises(ValueError, match="batch_size"):
        app.task(batch_size=5)(add)
    with pytest.raises(ValueError, match="not raw"):
        app.task(serde="raw")(add)
    with pytest.raises(ValueError, match="not raw"):
        Penstock("memory:", serde=Signed("raw", Signed.new_key())).task(add)
    with pytest.raises(TypeError, match="did you mean max_retries"):
        app.task(max_retry=1)(add)  # type: ignore[call-arg]
    assert app.handlers == {}
    assert app.task(max_retries=1, timeout=5)(add).queue.name == "add"
    assert app.options("add").timeout == 5


def test_the_name_of_a_task() -> None:
    """The name of its function, wherever that is defined, or the given one; `queue` names the queue alone."""
    app = Penstock("memory:")

    def inner() -> None: ...

    assert app.task(inner).queue.name == "inner"
    assert app.task(name="named")(inner).queue.name == "named"
    task = app.task(name="shown", queue="used")(inner)
    assert (task.name, task.queue.name) == ("shown", "used")


def test_a_second_task_of_the_same_name_is_refused() -> None:
    """Two functions of one name cannot have one queue: the message names the first one and the way out."""
    app = Penstock("memory:")

    def one() -> Task[[], None, None]:
        @app.task
        def work() -> None: ...

        return work

    assert one().name == "work"
    with pytest.raises(ValueError, match=r"task work: queue 'work' has a handler already .*one\.<locals>\.work.*name="):
        one()
    assert list(app.handlers) == ["work"]


def create_app() -> tuple[Penstock, Task[..., Any, Any]]:
    """Return an app and a task of it, as an app factory does: the functions use themselves, each other and a class."""

    @dataclass
    class Step:
        left: int

    app = Penstock("memory:")

    @app.task
    async def count_down(step: Step, job: Job | None = None) -> int:
        if step.left:
            await count_down.enqueue(Step(step.left - 1))
            await finish.enqueue(step.left)
        return step.left

    @app.task
    async def finish(left: int) -> int:
        return left

    @app.handler("steps")
    async def handle(step: Step) -> None:
        await handle(step)
        await later(step.left)

    async def later(left: int) -> None: ...

    return app, count_down


async def test_tasks_of_a_factory_refer_to_themselves_to_later_ones_and_to_its_classes() -> None:
    """Names without a value as yet do not stop the declaration, and a class of the factory is an annotation."""
    app, task = create_app()
    async with app:
        await task.queue.enqueue({"step": {"left": 2}}, id="a")
        await Worker(app).drain()
        assert await task.result("a") == 2
        assert [(await app.queue(name).counts())[State.COMPLETED] for name in ("count_down", "finish")] == [3, 2]


# the types of arguments ---------------------------------------------------------------------------


class Color(StrEnum):
    RED = "red"


class Name(str):
    """A text with methods of its own."""


class Size(IntEnum):
    SMALL = 1


class User(BaseModel):
    name: str
    age: int = 0


def everything(
    a: int = 0,
    b: float = 0,
    text: str = "",
    when: datetime | None = None,
    point: Point | None = None,
    points: list[Point] = [],  # noqa: B006
    ids: set[int] = set(),  # noqa: B006
    color: Color = Color.RED,
    user: User | None = None,
    users: list[User] = [],  # noqa: B006
    anything: Any = None,
    unknown=None,
    *more: int,
    **rest: str,
) -> None: ...


@pytest.mark.only("memory")
@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"a": "1"}, "a: expected int, got str"),
        ({"a": None}, "a: expected int, got null"),
        ({"a": True}, "a: expected int, got bool"),
        ({"a": 1.5}, "a: expected int, got float"),
        ({"b": "1"}, "b: expected float, got str"),
        ({"text": 5}, "text: expected str, got int"),
        ({"when": "yesterday"}, "when: invalid"),
        ({"point": {"y": 1}}, "point: object missing required field x"),
        ({"points": [Point(1), {"x": "2"}]}, r"points\[1\].x: expected int, got str"),
        ({"ids": ["1"]}, r"ids\[(0|\.\.\.)\]: expected int, got str"),
        ({"color": "blue"}, "color: invalid enum value"),
        ({"user": {"age": 1}}, "user: name: "),
        ({"users": [{"name": 5}]}, "users.*name: "),
        ({"other": 5}, "rest.*: expected str, got int"),
    ],
)
async def test_an_argument_of_another_type_is_refused_at_the_call(
    app: Penstock, kwargs: dict[str, Any], message: str
) -> None:
    """A TypeError names the argument and the place in it, by `enqueue`, `entry` and `call`; nothing is stored."""
    task = app.task(everything)
    with pytest.raises(TypeError, match=rf"everything\(\): {message}"):
        await task.enqueue(**kwargs)
    with pytest.raises(TypeError, match=message):
        task.options(delay=5).entry(**kwargs)
    with pytest.raises(TypeError, match=message):
        await app.task(name="other")(everything).call(**kwargs)
    assert await app.queues() == []


@pytest.mark.only("memory")
@pytest.mark.parametrize(
    "kwargs",
    [
        {"a": Size.SMALL, "b": 1, "text": Name("x")},
        {"text": Color.RED, "color": "red"},
        {"when": datetime(2030, 1, 1, tzinfo=UTC)},
        {"when": "2030-01-01T00:00:00Z"},
        {"point": {"x": 1}, "points": (Point(1), {"x": 2})},
        {"ids": {1, 2}},
        {"ids": [1, 2]},
        {"user": User(name="x"), "users": [User(name="y"), {"name": "z"}]},
        {"anything": [1, "2", None], "unknown": {"x": 1.5}},
        {"other": "x"},
    ],
)
async def test_an_argument_that_a_worker_can_decode_is_accepted(app: Penstock, kwargs: dict[str, Any]) -> None:
    """A call is accepted at the enqueue if the run will get its arguments, and the run does."""
    task = app.task(everything)
    answer = await task.enqueue(**kwargs)
    assert await run_of(app, task, answer.id) is None


@pytest.mark.only("memory")
async def test_calls_given_as_tuples_are_checked_before_any_is_stored(app: Penstock) -> None:
    """One wrong argument in a list of calls is a TypeError, and no job of the list is stored."""
    task = app.task(add)
    with pytest.raises(TypeError, match=r"add\(\): b: expected int, got str"):
        await task.enqueue_many([(1, 2), (1, "2")])
    assert await app.queues() == []


@pytest.mark.only("memory")
async def test_the_check_of_arguments_can_be_turned_off(app: Penstock) -> None:
    """With `check=False` a wrong argument is enqueued, and fails when it is run."""
    task: Any = app.task(check=False)(add)
    await task.options(id="a").enqueue("x")
    await Worker(app).drain()
    with pytest.raises(JobFailed, match="expected type"):
        await task.result("a")


@pytest.mark.only("memory")
async def test_arguments_of_a_serde_without_types_are_not_checked(app: Penstock) -> None:
    """Only the serde knows what it can decode, so any value is accepted."""

    class Eval:
        def dumps(self, value: Any, /) -> bytes:
            return repr(value).encode()

        def loads(self, data: bytes, type: Any, /) -> Any:
            return eval(data)

    task: Any = app.task(serde=Eval())(add)
    answer = await task.enqueue(1j, b=2)
    assert await run_of(app, task, answer.id) == 1j + 2


# hints --------------------------------------------------------------------------------------------


@pytest.mark.only("memory")
async def test_an_option_given_as_an_argument_is_refused_with_a_hint(app: Penstock) -> None:
    """`call(1, timeout=5)` is refused, and the message shows where options go."""
    task: Any = app.task(add)
    with pytest.raises(TypeError, match=r"unexpected keyword argument 'timeout'; .*add\.options\(timeout=\.\.\.\)"):
        await task.call(1, 2, timeout=5)


@pytest.mark.parametrize(
    ("name", "instead"),
    [("delay", "use enqueue"), ("apply_async", r"use options\(\.\.\.\)\.enqueue"), ("send", "use enqueue")],
)
def test_a_method_name_of_another_system_is_refused_with_a_hint(name: str, instead: str) -> None:
    """`task.delay(…)` and the like are an AttributeError that names the method of Penstock."""
    for app in (Penstock("memory:"), SyncPenstock("memory:")):
        task: Any = app.task(add)
        with pytest.raises(AttributeError, match=rf"'Task' object has no attribute '{name}'; {instead}"):
            getattr(task, name)
        with pytest.raises(AttributeError, match=instead):
            getattr(task.options(delay=5), name)
        assert not hasattr(task, "anything")


app_of_module = Penstock("memory:")
module_task = app_of_module.task(both)


def test_a_task_can_be_found_by_its_path() -> None:
    """ "module:task" leads to what runs its payloads."""
    assert load_function(f"{__name__}:module_task") is app_of_module.handlers["both"].function
    assert not inspect.iscoroutinefunction(load_function(f"{__name__}:module_task"))
