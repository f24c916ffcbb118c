"""A server whose memory is full: it refuses new jobs, and everything else goes on."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis
from redis.exceptions import OutOfMemoryError

from penstock import Job, Penstock, State, StorageUnavailable, Update, Worker
from penstock.sync import Penstock as SyncPenstock
from tests.cli.conftest import Cli
from tests.servers import Cluster, Server, redis_program, start_or_skip, valkey_program

ROOM = 4_000_000
PAYLOAD = "x" * 10_000


@pytest.fixture(params=["redis", "valkey", "cluster"])
def server(request: pytest.FixtureRequest) -> Iterator[Server | Cluster]:
    """A server of its own, whose memory the test fills."""
    if request.param == "cluster":
        made: Server | Cluster = start_or_skip(lambda: Cluster().start())
    else:
        program = redis_program if request.param == "redis" else valkey_program
        made = start_or_skip(lambda: Server(program()).start())
    yield made
    made.remove()


def url_of(server: Server | Cluster) -> str:
    if isinstance(server, Cluster):
        return f"redis+cluster://{server.nodes[0].address}"
    return f"redis://{server.address}/0"


@contextmanager
def full(server: Server | Cluster) -> Generator[None]:
    """Let every node have less memory than it uses."""
    nodes = server.nodes if isinstance(server, Cluster) else [server]
    set_all = [node.client() for node in nodes]
    for client in set_all:
        client.config_set("maxmemory", 1)
    yield
    for client in set_all:
        client.config_set("maxmemory", 0)
        client.close()


def fill(client: redis.Redis) -> None:
    """Write strings, ever smaller ones, until the server refuses the smallest."""
    client.config_set("maxmemory", client.info("memory")["used_memory"] + ROOM)
    size, number = ROOM, 0
    while size:
        try:
            client.set(f"filler{number}", b"x" * size)
            number += 1
        except OutOfMemoryError:
            size //= 2


@pytest.mark.parametrize("server", ["redis", "valkey"], indirect=True)
async def test_workers_drain_a_server_that_its_jobs_have_filled(server: Server) -> None:
    """Jobs are enqueued until the server refuses them; a worker runs all, and then new ones are accepted again."""
    app = Penstock(url_of(server))
    seen: list[int] = []

    @app.handler("q", retain="none")
    async def run(payload: tuple[int, str]) -> str:
        seen.append(payload[0])
        return "done"

    with server.client() as client:
        async with app:
            queue = app.queue("q")
            await queue.enqueue([-1, PAYLOAD])
            await Worker(app).drain()  # the server keeps the scripts, which take room too
            fill(client)
            client.delete("filler0")  # there is room for some hundred jobs again
            stored = 0

            async def enqueue_for_ever() -> None:
                nonlocal stored
                while True:
                    await queue.enqueue([stored, PAYLOAD])
                    stored += 1

            with pytest.raises(StorageUnavailable, match=r"is full \([\d.]+ MB used, maxmemory [\d.]+ MB\)"):
                await enqueue_for_ever()
            assert stored > 50
            await Worker(app).drain()
            assert sorted(seen) == list(range(-1, stored))
            assert await queue.enqueue([stored, PAYLOAD])


Enqueue = Callable[[Penstock], Awaitable[object]]
ENQUEUES: dict[str, Enqueue] = {
    "a new id": lambda app: app.queue("q").enqueue(1),
    "an id of its own": lambda app: app.queue("q").enqueue(1, id="new"),
    "an id that is taken": lambda app: app.queue("q").enqueue(1, id="a"),
    "an update": lambda app: app.queue("q").enqueue(1, id="a", on_conflict=Update()),
    "a later time": lambda app: app.queue("q").enqueue(1, delay=60),
    "a group": lambda app: app.queue("q").enqueue(1, group="g"),
    "many": lambda app: app.queue("q").enqueue_many(range(3)),
    "a queue of its own": lambda app: app.queue("other").enqueue(1),
    "a call": lambda app: app.queue("q").call(1),
}


async def test_only_enqueues_are_refused_while_the_server_is_full(server: Server | Cluster) -> None:
    """Every kind of enqueue raises an error for a full server, and nothing is stored."""
    async with Penstock(url_of(server)) as app:
        queue = app.queue("q")
        await queue.enqueue(1, id="a")
        with full(server):
            for kind, enqueue in ENQUEUES.items():
                with pytest.raises(StorageUnavailable, match=r"is full.*nothing was stored") as raised:
                    await enqueue(app)
                assert raised.value.uncertain is False, kind
            assert (await queue.counts())[State.QUEUED] == 1
            assert await app.queues() == ["q"]
        assert await queue.enqueue(1, id="b")


async def test_outcomes_fail_jobs_and_follow_ups_are_kept_while_the_server_is_full(server: Server | Cluster) -> None:
    """A worker starts on a full server, and stores results, retries, fail jobs, follow-up jobs and progress."""
    app = Penstock(url_of(server))
    failures: list[str] = []

    @app.handler("q/work", on_failure=lambda failure: failures.append(failure.job.id), max_retries=1, min_backoff=0)
    async def work(payload: str, job: Job) -> str:
        await job.progress(0.5, "half")
        if payload == "fail":
            raise ValueError(payload)
        job.then("q/next", payload)
        return payload

    @app.handler("q/next")
    def following(payload: str) -> str:
        return payload

    async with app:
        for name in ("good", "fail"):
            await app.queue("q/work").enqueue(name, id=name)
        await app.queue("q/work").enqueue("late", id="late", delay=0.05)
        with full(server):
            await Worker(app).drain(scheduled=True)
            assert await app.queue("q/work").result("good") == "good"
            assert await app.queue("q/work").result("late") == "late"
            status = await app.queue("q/work").status("fail")
            assert status is not None
            assert (status.state, status.attempts) == (State.FAILED, 2)
            assert failures == ["fail"]
            assert (await app.queue("q/next").counts())[State.COMPLETED] == 2


async def test_operators_can_look_and_clear_up_while_the_server_is_full(server: Server | Cluster) -> None:
    """Reads, cancels, pauses, retries, reservations, events and deletions work on a full server, also a first open."""
    async with Penstock(url_of(server)) as app:
        await app.queue("q").enqueue_many([1, 2, 3])
        await app.queue("q").enqueue(4, id="a")
    with full(server):
        async with Penstock(url_of(server)) as app:
            queue = app.queue("q")
            assert await queue.peek() is not None
            assert await queue.why("a") is not None
            assert len(await queue.find()) == 4
            async with app.events("cancelled") as events:
                assert await queue.cancel("a")
                assert (await anext(events)).id == "a"
            assert await queue.retry("a") == 1
            assert await queue.pause()
            assert await queue.resume()
            [held] = await queue.reserve()
            await held.extend()
            await held.complete(7)
            assert await queue.result(held.id) == 7
            assert await queue.update_result_ttl(held.id, 60)
            assert await queue.delete() == 4
            assert await app.queues() == []


@pytest.mark.parametrize("server", ["redis", "cluster"], indirect=True)
def test_a_sync_app_is_refused_only_new_jobs_by_a_full_server(server: Server | Cluster) -> None:
    """The sync app opens on a full server and reads, and its enqueue raises the same error."""
    with SyncPenstock(url_of(server)) as app:
        app.queue("q").enqueue(1, id="a")
    with full(server), SyncPenstock(url_of(server)) as app:
        with pytest.raises(StorageUnavailable, match=r"is full.*nothing was stored"):
            app.queue("q").enqueue(1)
        assert app.queue("q").status("a") is not None
        assert app.queue("q").cancel("a")


COMMANDS = (
    ("queue", "ls"), ("queue", "show", "q"), ("queue", "pause", "q"), ("queue", "resume", "q"), ("job", "ls", "q"),
    ("job", "show", "q", "a"), ("job", "why", "q", "a"), ("worker", "ls"), ("top", "--once"), ("export", "q"),
    ("job", "cancel", "q", "a"), ("queue", "delete", "q", "--yes"),
)  # fmt: skip


@pytest.mark.parametrize("server", ["redis"], indirect=True)
def test_the_commands_of_an_operator_work_while_the_server_is_full(server: Server, tmp_path: Path) -> None:
    """Each command but `enqueue` exits with 0; `doctor` shows how full the server is."""
    cli = Cli(url_of(server), tmp_path)

    async def add(app: Penstock) -> None:
        await app.queue("q").enqueue_many([1, 2])
        await app.queue("q").enqueue(3, id="a")

    cli.do(add)
    with full(server):
        line = cli.fails("enqueue", "q", "1")
        assert "is full" in line
        assert "running there" not in line
        assert re.search(r"memory: full: [\d,]+ of [\d,]+ MB in use", cli.run("doctor").stdout)
        for command in COMMANDS:
            cli.ok(*command)
