"""The app: opening, registering, serdes, listeners."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock import Event, Failure, Job, Penstock, State, Worker, sync
from penstock.storage import connect


async def test_an_app_opens_and_closes_more_than_once(tmp_path: Path) -> None:
    """open() and close() are idempotent, and a closed app can be opened again."""
    app = Penstock(f"sqlite:{tmp_path / 'a.db'}")
    await app.open()
    await app.open()
    await app.queue("q").enqueue(1, id="a")
    await app.close()
    await app.close()
    assert not app.is_open
    async with app:
        assert (await app.queue("q").counts())[State.QUEUED] == 1


async def test_an_app_opens_with_the_first_call(tmp_path: Path) -> None:
    """An app that was not opened opens with its first call, once even if two calls come together."""
    app = Penstock(f"sqlite:{tmp_path / 'a.db'}")
    await asyncio.gather(app.queue("q").enqueue(1), app.queue("q").enqueue(2))
    assert app.is_open
    await app.close()


async def test_the_url_comes_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PENSTOCK_URL is used when no url is given, and else a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", f"sqlite:{tmp_path / 'named.db'}")
    async with Penstock() as app:
        await app.queues()
    assert (tmp_path / "named.db").exists()
    monkeypatch.delenv("PENSTOCK_URL")
    async with Penstock() as app:
        await app.queues()
    assert (tmp_path / "penstock.db").exists()


@pytest.mark.parametrize("value", ["", "  "])
@pytest.mark.parametrize("app_class", [Penstock, sync.Penstock])
def test_an_empty_url_is_refused(app_class: Any, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A url or a PENSTOCK_URL that is set but empty is a `ValueError`, not a file in the working directory."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="url is empty; leave it out"):
        app_class(value)
    monkeypatch.setenv("PENSTOCK_URL", value)
    with pytest.raises(ValueError, match="PENSTOCK_URL is set but empty; unset it"):
        app_class()
    app_class("memory:")


async def test_a_file_url_keeps_the_jobs_in_a_directory(tmp_path: Path) -> None:
    """file:DIRECTORY keeps the jobs in a file there, and makes the directory."""
    async with Penstock(f"file:{tmp_path / 'data'}") as app:
        await app.queues()
    assert (tmp_path / "data" / "penstock.db").exists()


async def test_an_app_takes_a_storage_object() -> None:
    """A storage may be given instead of a URL, but not with one."""
    async with Penstock(storage=connect("memory:")) as app:
        assert await app.queues() == []
    with pytest.raises(ValueError, match="url or storage"):
        Penstock("memory:", storage=connect("memory:"))


def test_bad_arguments_are_refused_by_name() -> None:
    """The exception names the argument."""
    with pytest.raises(ValueError, match="namespace"):
        Penstock("memory:", namespace="")
    with pytest.raises(ValueError, match="max_payload"):
        Penstock("memory:", max_payload=0)
    with pytest.raises(TypeError, match="max_payload"):
        Penstock("memory:", max_payload="1")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="max_result"):
        Penstock("memory:", max_result=0)
    with pytest.raises(TypeError, match="max_result"):
        Penstock("memory:", max_result=True)
    with pytest.raises(ValueError, match="serde"):
        Penstock("memory:", serde="pickle")
    with pytest.raises(TypeError, match="result_serde"):
        Penstock("memory:", result_serde=5)  # type: ignore[arg-type]


def test_a_queue_has_one_handler() -> None:
    """A second handler for a queue, or for its fail queue, is refused with the first one's name."""
    app = Penstock("memory:")

    @app.handler("q", on_failure=print_failure)
    def first(payload: int) -> None: ...

    with pytest.raises(ValueError, match=r"'q' has a handler already .*first"):
        app.listen("q", first)
    with pytest.raises(ValueError, match="q/failures"):
        app.listen("q/failures", print_failure)


def print_failure(failure: Failure) -> None: ...


takes_nothing: Any = lambda: None  # noqa: E731


def test_a_handler_that_is_refused_leaves_nothing_behind() -> None:
    """After a refused declaration the queue is as free as before."""
    app = Penstock("memory:")
    with pytest.raises(TypeError, match="it takes no argument"):
        app.listen("q", takes_nothing)
    with pytest.raises(TypeError, match="did you mean"):
        app.listen("q", print_failure, max_retry=3)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="annotation"):
        app.listen("q", complex_payload)
    with pytest.raises(ValueError, match="queue"):
        app.listen("", print_failure)
    assert app.handlers == {}


def test_a_fail_handler_gets_failures() -> None:
    """A fail handler with another payload annotation is refused, and so are its bad options."""
    app = Penstock("memory:")
    with pytest.raises(TypeError, match="gets a Failure"):
        app.listen("q", print_failure_wrongly, on_failure=print_failure_wrongly)
    with pytest.raises(TypeError, match="failure_options must be a mapping"):
        app.listen("q", print_failure_wrongly, on_failure=print_failure, failure_options=[])  # type: ignore[arg-type]
    assert app.handlers == {}


def print_failure_wrongly(failure: int) -> None: ...


def complex_payload(payload: complex) -> None: ...


def test_a_queue_has_one_serde() -> None:
    """Two different serdes for one queue are an error; the same one twice is not."""
    app = Penstock("memory:")
    app.queue("q", serde="msgpack")
    app.listen("q", lambda payload: None, serde="msgpack", result_serde="json")
    with pytest.raises(ValueError, match="'q' has the serde"):
        app.queue("q", serde="json")
    with pytest.raises(ValueError, match="'q' has the result_serde"):
        app.queue("q", result_serde="raw")


async def test_each_queue_uses_its_own_serde(app: Penstock) -> None:
    """Raw bytes, msgpack and JSON side by side; results of raw queues may be anything."""
    app.listen("raw", lambda payload: None, serde="raw")
    app.listen("packed", lambda payload: payload, serde="msgpack")
    await app.queue("raw").enqueue(b"\xff", id="a")
    await app.queue("packed").enqueue({"b": b"\xff"}, id="a")
    await Worker(app).drain()
    assert await app.queue("raw").result("a", default="none") is None
    assert await app.queue("packed").result("a") == {"b": b"\xff"}
    status = await app.queue("raw").status("a")
    assert status is not None
    assert status.payload == b"\xff"


async def test_a_serde_given_late_holds_for_failures_too(app: Penstock) -> None:
    """The original payload is opened by the queue's own serde, whenever that was named."""
    payloads: list[Any] = []

    def on_failure(failure: Failure) -> None:
        payloads.append(failure.payload)

    @app.handler("q", on_failure=on_failure, max_retries=0)
    def handle(payload: dict[str, bytes]) -> None:
        raise ValueError("no")

    await app.queue("q", serde="msgpack").enqueue({"b": b"\xff"})
    await Worker(app).drain()
    assert payloads == [{"b": b"\xff"}]
    assert (await app.queue("q/failures").find("completed"))[0].payload.payload == {"b": b"\xff"}


async def test_listeners_get_the_events_of_their_app(app: Penstock) -> None:
    """Transitions of producers and workers are emitted in order, with results and errors."""
    received: list[Event] = []
    app.on("*")(received.append)

    @app.handler("q", max_retries=1, min_backoff=0)
    async def handle(payload: str, job: Job) -> str:
        if payload == "bad":
            raise ValueError("no")
        return payload

    queue = app.queue("q")
    await queue.enqueue("good", id="a")
    await Worker(app, id="w").drain()
    assert [(e.name, e.id) for e in received if e.id] == [("enqueued", "a"), ("started", "a"), ("completed", "a")]
    assert (received[-1].result, received[-1].worker, received[-1].attempt, received[-1].queue) == ("good", "w", 1, "q")
    received.clear()
    await queue.enqueue("bad", id="b")
    await Worker(app).drain(scheduled=True)
    assert [e.name for e in received if e.id] == ["enqueued", "started", "retrying", "started", "failed"]
    assert received[-1].error is not None
    assert received[-1].error.message == "no"
    received.clear()
    await queue.enqueue("x", id="c", delay=60)
    await queue.enqueue("y", id="c", on_conflict="update")
    await queue.cancel("c")
    await queue.delete()
    assert [e.name for e in received] == ["enqueued", "updated", "cancelled", "queue_deleted"]


async def test_a_handler_by_path_runs(app: Penstock) -> None:
    """listen() takes "module:function", imported when the worker starts."""
    app.listen("q", "tests.client.test_app:double")
    await app.queue("q").enqueue(4, id="a")
    await Worker(app).drain()
    assert await app.queue("q").result("a") == 8
    app.listen("r", "tests.client.test_app:missing")
    with pytest.raises(ImportError, match="missing"):
        await Worker(app).drain()


def double(payload: int) -> Any:
    return payload * 2
