"""`Penstock(timeout=…)`: a producer gets an answer or an error in time from a storage that does not answer."""

from __future__ import annotations

import asyncio
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import Penstock, State, StorageUnavailable, Worker
from penstock.sync import Penstock as SyncPenstock
from tests.servers import Server, redis_program, start_or_skip
from tests.support import eventually

TIMEOUT = 0.3


@pytest.fixture
def server() -> Iterator[Server]:
    """A server of its own, which the test freezes."""
    server = start_or_skip(lambda: Server(redis_program()).start())
    yield server
    server.remove()


@pytest.fixture
def url(server: Server) -> str:
    return f"redis://{server.address}/0"


@contextmanager
def frozen(server: Server) -> Generator[None]:
    """Let a server neither answer nor close its connections."""
    assert server.process is not None
    server.process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        server.process.send_signal(signal.SIGCONT)


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Hold the lock of a file, as another process does."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    try:
        yield
    finally:
        other.execute("ROLLBACK")
        other.close()


Request = Callable[[Penstock], Awaitable[object]]
PUTS: dict[str, Request] = {
    "enqueue": lambda app: app.queue("q").enqueue(1),
    "enqueue with an id": lambda app: app.queue("q").enqueue(1, id="a"),
    "enqueue into a group": lambda app: app.queue("q").enqueue(1, group="g"),
    "enqueue many": lambda app: app.queue("q").enqueue_many([1, 2]),
    "call": lambda app: app.queue("q").call(1),
}
OTHERS: dict[str, Request] = {
    "cancel": lambda app: app.queue("q").cancel("a"),
    "status": lambda app: app.queue("q").status("a"),
    "counts": lambda app: app.queue("q").counts(),
    "find": lambda app: app.queue("q").find(),
    "queues": lambda app: app.queues(),
    "workers": lambda app: app.workers(),
    "pause": lambda app: app.queue("q").pause(),
}


@pytest.mark.parametrize("name", [*PUTS, *OTHERS])
async def test_each_request_to_a_frozen_server_raises_in_time(name: str, server: Server, url: str) -> None:
    """The error names the bound; that of a put adds that the job may have been stored."""
    async with Penstock(url, timeout=TIMEOUT) as app:
        await app.queue("first").enqueue(0)
        with frozen(server), pytest.raises(StorageUnavailable, match=r"did not answer within 0\.3 s") as raised:
            await (PUTS | OTHERS)[name](app)
        assert raised.value.uncertain is True
        assert ("may have been stored" in str(raised.value)) == (name in PUTS)


async def test_a_job_that_may_have_been_stored_is_stored_once_when_enqueued_again(server: Server, url: str) -> None:
    """The message names the id; with it the same enqueue is a duplicate or a new job, never a second one."""
    async with Penstock(url, timeout=TIMEOUT) as app:
        await app.queue("q").enqueue(0, id="zero")
        with frozen(server), pytest.raises(StorageUnavailable, match="again with the same id, 'one'"):
            await app.queue("q").enqueue(1, id="one")
        await app.queue("q").enqueue(1, id="one")
        assert (await app.queue("q").counts())[State.QUEUED] == 2


async def test_many_callers_of_a_frozen_server_all_get_an_error_in_time(server: Server, url: str) -> None:
    """Callers whose jobs wait for an earlier call to end are bounded by their own time, not by one after the other."""
    async with Penstock(url, timeout=TIMEOUT) as app:
        await app.queue("q").enqueue(0)
        with frozen(server):
            async with asyncio.timeout(12):  # fifty callers one after the other would take 15 s, three times
                for _ in range(3):
                    calls = [app.queue("q").enqueue(n, id=str(n)) for n in range(50)]
                    answers = await asyncio.gather(*calls, return_exceptions=True)
                    assert {type(answer) for answer in answers} == {StorageUnavailable}


async def test_a_first_call_opens_the_storage_within_the_bound(server: Server, url: str) -> None:
    """An app that is not open yet: nothing was sent, so the error adds that nothing was stored."""
    app = Penstock(url, timeout=TIMEOUT)
    with frozen(server), pytest.raises(StorageUnavailable, match=r"opened within 0\.3 s; nothing was stored"):
        await app.queue("q").enqueue(1)
    assert await app.queue("q").enqueue(1)
    await app.close()


@pytest.mark.parametrize("name", ["enqueue", "enqueue_many", "counts", "open"])
def test_a_sync_request_to_a_frozen_server_raises_in_time(name: str, server: Server, url: str) -> None:
    """The same without an event loop, also for a connection that has to be made."""
    calls: dict[str, Callable[[SyncPenstock], object]] = {
        "enqueue": lambda app: app.queue("q").enqueue(1, id="a"),
        "enqueue_many": lambda app: app.queue("q").enqueue_many([1, 2]),
        "counts": lambda app: app.queue("q").counts(),
        "open": lambda app: app.queue("q").enqueue(1),
    }
    app = SyncPenstock(url, timeout=TIMEOUT)
    if name != "open":
        app.queue("q").enqueue(0)
    with frozen(server), pytest.raises(StorageUnavailable) as raised:
        calls[name](app)
    assert ("may have been stored" in str(raised.value)) == name.startswith("enqueue")
    assert app.queue("q").enqueue(2)
    app.close()


async def test_an_enqueue_to_a_server_that_is_away_stores_nothing_and_its_error_states_it(
    server: Server, url: str
) -> None:
    """A connection that is refused sends nothing: the error adds that nothing was stored."""
    async with Penstock(url, timeout=TIMEOUT) as app:
        await app.queue("q").enqueue(0)
        server.kill()
        with suppress(StorageUnavailable):  # the connection that there was may take this one
            await app.queue("q").enqueue(1)
        with pytest.raises(StorageUnavailable, match="nothing was stored") as raised:
            await app.queue("q").enqueue(2)
        assert raised.value.uncertain is False


async def test_a_worker_waits_longer_than_the_timeout_of_producers(server: Server, url: str) -> None:
    """An outcome is recorded once by a worker whose server was frozen for longer than `timeout`."""
    app = Penstock(url, timeout=0.5)
    ended = asyncio.Event()
    go = asyncio.Event()

    @app.handler("q")
    async def run(payload: int) -> int:
        await go.wait()
        ended.set()
        return payload

    async with app:
        id = (await app.queue("q").enqueue(7)).id
        async with Worker(app):
            await eventually(lambda: state_is(app, id, State.RUNNING))
            with frozen(server):
                go.set()
                await ended.wait()
                for _ in range(2):
                    with pytest.raises(StorageUnavailable):
                        await app.queue("q").counts()
            await eventually(lambda: state_is(app, id, State.COMPLETED), 20)
        status = await app.queue("q").status(id)
        assert status is not None
        assert (status.attempts, status.result) == (1, 7)


async def state_is(app: Penstock, id: str, state: State) -> bool:
    with suppress(StorageUnavailable):
        status = await app.queue("q").status(id)
        return status is not None and status.state is state
    return False


async def test_a_socket_timeout_of_the_url_counts_if_it_is_shorter(server: Server, url: str) -> None:
    """`socket_timeout` bounds one answer, of producers and workers; `timeout` a producer's request as a whole."""
    async with Penstock(f"{url}?socket_timeout=0.2", timeout=None) as app:
        await app.queue("q").enqueue(0, id="a")
        with frozen(server), pytest.raises(StorageUnavailable, match=r"no answer for 0\.2 s.*may have been stored"):
            await app.queue("q").enqueue(1, id="b")


# files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PUTS, "cancel", "pause"])
async def test_each_write_to_a_locked_file_raises_in_time(name: str, tmp_path: Path) -> None:
    """Another process holds the lock: the error names the bound, and nothing is stored later either."""
    path = tmp_path / "jobs.db"
    async with Penstock(f"sqlite:{path}", timeout=TIMEOUT) as app:
        await app.queue("first").enqueue(0)
        with locked(path), pytest.raises(StorageUnavailable, match=r"is locked .* waited 0\.3 s") as raised:
            await (PUTS | OTHERS)[name](app)
        assert raised.value.uncertain is False
        assert ("nothing was stored" in str(raised.value)) == (name in PUTS)
        assert await app.queues() == ["first"]


@pytest.mark.parametrize("threads", [1, 60])
def test_sync_callers_of_a_locked_file_all_get_an_error_in_time(threads: int, tmp_path: Path) -> None:
    """Threads that wait for each other's turn are bounded by their own time."""
    path = tmp_path / "jobs.db"
    with SyncPenstock(f"sqlite:{path}", timeout=TIMEOUT) as app:
        app.queue("q").enqueue(0)

        def enqueue() -> str:
            with pytest.raises(StorageUnavailable, match=r"waited 0\.3 s for it; nothing was stored") as raised:
                app.queue("q").enqueue(1)
            return str(raised.value)

        with locked(path), ThreadPoolExecutor(threads) as pool:
            # Sixty threads one after the other would take 18 s.
            done, late = wait([pool.submit(enqueue) for _ in range(threads)], timeout=12)
            assert not late
            for each in done:
                each.result()
        assert app.queue("q").counts()[State.QUEUED] == 1


async def test_a_worker_waits_longer_than_a_producer_for_a_locked_file(tmp_path: Path) -> None:
    """A producer's request that raises takes nothing from a worker's requests in the same transaction."""
    path = tmp_path / "jobs.db"
    async with Penstock(f"sqlite:{path}", timeout=TIMEOUT) as app:
        await app.queue("q").enqueue(0)
        with locked(path):
            beat = asyncio.create_task(app.storage.beat("w", 60_000))
            with pytest.raises(StorageUnavailable):
                await app.queue("q").enqueue(1)
            assert not beat.done()
        await beat
        assert [worker.id for worker in await app.storage.workers()] == ["w"]
        await app.storage.beat("w", 0)


# argument ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "seconds"), [(5, 5.0), (0.25, 0.25), (timedelta(seconds=2), 2.0), (None, None)])
@pytest.mark.parametrize("kind", [Penstock, SyncPenstock])
def test_a_timeout_is_seconds_a_timedelta_or_none(kind: Any, given: Any, seconds: float | None) -> None:
    app = kind("memory:", timeout=given)
    assert (app.async_app if kind is SyncPenstock else app).timeout == seconds


@pytest.mark.parametrize(("given", "error"), [(0, ValueError), (-1, ValueError), (True, TypeError), ("5", TypeError)])
@pytest.mark.parametrize("kind", [Penstock, SyncPenstock])
def test_a_timeout_that_makes_no_sense_is_refused(kind: Any, given: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="timeout"):
        kind("memory:", timeout=given)


def test_the_default_timeout_is_five_seconds() -> None:
    assert Penstock("memory:").timeout == 5
