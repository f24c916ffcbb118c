"""The Redis user of SECURITY.md: its rights are enough for all of Penstock, and no more than needed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Entry, Job, Penstock, Update, Worker, sync
from penstock.ops.doctor import examine
from tests.servers import Server, redis_program, start_or_skip, valkey_program

ROOT = Path(__file__).parents[2]
LUA = ROOT / "src/penstock/storage/redis/lua"


def rules() -> list[str]:
    """Return the rules of the ACL command in SECURITY.md, after the user's name."""
    block = re.search(r"^ACL SETUSER penstock (.*?)^```", (ROOT / "SECURITY.md").read_text(), re.MULTILINE | re.DOTALL)
    assert block
    return block[1].replace(">PASSWORD", ">word").split()


@pytest.fixture(params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server with that user, and the administrator."""
    server = start_or_skip(lambda: Server(redis_program() if request.param == "redis" else valkey_program()).start())
    with server.client() as client:
        client.execute_command("ACL", "SETUSER", "penstock", "reset", *rules())
    yield server
    server.remove()


def denied(server: Server) -> list[str]:
    """Return the commands that the server has refused so far."""
    with server.client() as client:
        return [str(line["object"]) for line in client.acl_log()]


async def test_all_operations_work_with_the_documented_rights(server: Server) -> None:
    """Queues, workers, events and both apps work as that user; only optional commands are refused."""
    url = f"redis://penstock:word@{server.address}"
    app = Penstock(url)

    @app.handler("q", max_retries=1, min_backoff=0.01, on_failure=print)
    async def run(payload: str, job: Job) -> str:
        await job.progress(0.5, "half")
        if payload == "fail":
            raise ValueError("as asked")
        if payload == "then":
            job.then("q/more", "x")
        return payload

    app.listen("batches", lambda payloads: payloads, batch_size=5)  # type: ignore[arg-type]
    async with app, app.events() as events, Worker(app) as worker:
        worker.warns = False
        queue = app.queue("q")
        assert await queue.call("work", timeout=60) == "work"
        await queue.enqueue_many([Entry("a", group="g"), Entry("b", group="g"), Entry("then"), Entry("fail", id="f")])
        await app.queue("batches").enqueue_many(range(9))
        await queue.enqueue("c", id="c", delay=3600, priority=3)
        await queue.enqueue("d", id="c", on_conflict=Update(run_at=False))
        with pytest.raises(Exception, match="as asked"):
            await queue.wait("f", timeout=60)
        assert await queue.cancel("c")
        assert await queue.retry("c")
        assert await queue.cancel_matching("nothing") == []
        assert await anext(events)
        assert await app.workers()
        assert "q" in await app.queues()
        for state in (None, "completed", "failed", "queued", "scheduled"):
            await queue.find(state)
        assert await queue.why("c")
        await queue.peek()
        await queue.counts()
        await queue.update_result_ttl("f", 60)
        await queue.pause()
        await queue.resume()
        await app.queue("pull").enqueue(1)
        [held] = await app.queue("pull").reserve(wait=60)
        await held.extend()
        await held.complete(1)
        await examine(app)
        await asyncio.to_thread(_without_await, url)
        await queue.delete()
    # The doctor and an idle worker also try commands that this user lacks, and work without them.
    assert set(denied(server)) <= {"info", "config|get", "client|setinfo", "client|id"}


def _without_await(url: str) -> None:
    with sync.Penstock(url) as app:
        app.queue("s").enqueue(1, id="a")
        assert app.queue("s").status("a")
        app.queue("s").delete()


async def test_keys_of_another_namespace_are_refused(server: Server) -> None:
    """The user cannot use the keys of another namespace."""
    with pytest.raises(Exception, match=r"(?i)permission|NOPERM"):
        await Penstock(f"redis://penstock:word@{server.address}", namespace="other").open()


async def test_operations_work_with_the_documented_rights_on_a_cluster(servers) -> None:
    """With the additional rules for a Cluster, the user can enqueue and run jobs there."""
    nodes = servers.get("cluster").nodes
    more = re.search(r"On a Cluster `(.*?)`", (ROOT / "SECURITY.md").read_text(), re.DOTALL)
    assert more
    for node in nodes:
        with node.client() as client:
            client.execute_command("ACL", "SETUSER", "penstock", "reset", *rules(), *more[1].split())
            client.execute_command("ACL", "LOG", "RESET")
    url = f"redis+cluster://penstock:word@{nodes[0].address}"
    app = Penstock(url)
    app.listen("q", lambda payload: payload)  # type: ignore[arg-type]
    try:
        async with app, app.events() as events, Worker(app) as worker:
            worker.warns = False
            assert await app.queue("q").call(1, timeout=60) == 1
            assert await anext(events)
            assert await app.workers()
            assert await app.queues()
            await asyncio.to_thread(_without_await, url)
            await app.queue("q").delete()
        refused = {command for node in nodes for command in denied(node)}
        assert refused <= {"info", "config|get", "client|setinfo", "client|id"}
    finally:
        for node in nodes:
            with node.client() as client:
                client.execute_command("ACL", "DELUSER", "penstock")


def test_the_documented_commands_are_those_that_are_used() -> None:
    """The rules list exactly the commands of the Lua scripts and the client."""
    used = {
        "eval",
        "evalsha",
        "ping",
        "blpop",
        "smembers",
        "subscribe",
        "pubsub|numsub",
    }
    for path in [*LUA.glob("*.lua"), LUA.parent / "listener_marks.py"]:
        found = re.findall(r"call\('(MEMORY', 'USAGE|[A-Z]+)'", path.read_text())
        used |= {name.lower().replace("', '", "|") for name in found}
    listed = {rule[1:] for rule in rules() if rule.startswith("+")}
    assert listed == used
