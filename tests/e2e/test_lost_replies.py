"""Workers and producers behind a proxy that loses replies, cuts connections or stops forwarding."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Entry, Penstock, State, StorageUnavailable
from penstock import sync as penstock_sync
from penstock.storage.redis.scripts import script
from tests.e2e.conftest import LONG_LEASE, Program, Stage, until
from tests.proxy import Proxy
from tests.servers import Server, redis_program

#: Timeout longer than any read timeout; no test waits this long unless it fails.
LONG_WAIT = 90.0

#: Read timeout (s) of clients behind the proxy.
SILENCE = 3


@pytest.fixture
def server() -> Iterator[Server]:
    """A Redis server of its own, which the test disturbs."""
    server = Server(redis_program()).start()
    yield server
    server.remove()


@pytest.fixture
def url(server: Server) -> str:
    return f"redis://{server.address}/0"


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    """The proxy between the workers of the test and the server; the test itself connects directly."""
    with server.client() as client:
        for verb in ("put", "claim", "settle", "renew"):
            client.script_load(script(verb).text)
    with Proxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def far(stage: Stage, proxy: Proxy, runner: asyncio.Runner) -> Iterator[Penstock]:
    """A producer behind the proxy."""
    far = Penstock(f"redis://{proxy.address}/0?socket_timeout={SILENCE}", namespace=stage.namespace)
    runner.run(far.open())
    yield far
    proxy.heal()
    runner.run(far.close())


def behind(proxy: Proxy, stage: Stage, *options: str, lease: float = 2) -> Program:
    """Start a worker behind the proxy."""
    stage.url, near = f"redis://{proxy.address}/0?socket_timeout={SILENCE}", stage.url
    worker = stage.worker(*options, lease=lease)
    stage.url = near
    return worker


def sha(verb: str) -> str:
    return script(verb).sha


# workers -----------------------------------------------------------------------------------------


async def test_a_lost_claim_runs_elsewhere(stage: Stage, proxy: Proxy) -> None:
    """A worker that got no answer to its claim does not run the job; after one lease another does, once."""
    await stage.enqueue("quick", "a")
    lost = proxy.lose_reply(sha("claim"))
    cut_off = behind(proxy, stage, "--queues", "quick")
    await until(lambda: lost.happened, 30)
    proxy.refuse()
    proxy.cut()
    assert (await stage.status("quick", "a")).state == "running"
    well = stage.worker("--queues", "quick")
    status = await stage.state("quick", "a", "completed", seconds=30)
    assert (status.attempts, status.stalls) == (2, 1)
    [[*_, attempt, pid]] = stage.lines("quick", "a")
    assert attempt == "2"
    assert int(pid) in well.workers()
    proxy.heal()
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert cut_off.process.poll() is None


async def test_a_lost_settlement_is_recorded_once(stage: Stage, proxy: Proxy) -> None:
    """A settle whose answer was lost is repeated, recorded once, and not answered as lost."""
    lost = proxy.lose_reply(sha("settle"))
    worker = behind(proxy, stage, "--queues", "quick")
    await stage.enqueue("quick", "a")
    await stage.state("quick", "a", "completed")
    await until(lambda: lost.happened)
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert [line[1:3] for line in stage.lines("quick")] == [["a", "1"], ["b", "1"]]
    assert stage.lines("lease_lost") == []
    assert "Traceback" not in worker.output_text


async def test_lost_renewals_cost_nothing(stage: Stage, proxy: Proxy) -> None:
    """A renewal whose answer was lost is repeated on a new connection, long before the lease expires."""
    behind(proxy, stage, "--queues", "slow", lease=6)
    await stage.enqueue("slow", "a", {"seconds": 9})
    await stage.line("begin", "a", 1)
    lost = proxy.lose_reply(sha("renew"), times=2)
    status = await stage.state("slow", "a", "completed", seconds=30)
    assert lost.count == 2
    assert (status.attempts, status.stalls) == (1, 0)


async def test_an_idle_worker_outlives_a_cut(stage: Stage, proxy: Proxy, server: Server) -> None:
    """An idle worker continues after its connections are cut, with or without a reset."""
    worker = behind(proxy, stage, "--queues", "quick")
    for number, reset in enumerate((False, True)):
        await until(lambda: waits(server))
        proxy.cut(reset=reset)
        await stage.enqueue("quick", f"j{number}")
        await stage.state("quick", f"j{number}", "completed")
    assert "Traceback" not in worker.output_text


def waits(server: Server) -> bool:
    """Return whether a client is blocked on a list."""
    with server.client() as client:
        return any("b" in each["flags"] for each in client.client_list())


@pytest.mark.parametrize("fault", ["client kill", "script flush"])
async def test_work_goes_on_while_the_server_cuts_and_forgets(stage: Stage, server: Server, fault: str) -> None:
    """While connections are killed or scripts flushed, every job completes and each outcome is recorded once."""
    queue, count = stage.app.queue("quick"), 300
    worker = stage.worker("--queues", "quick", processes=2, lease=2 if fault == "client kill" else LONG_LEASE)
    await worker.working(2)
    completed = 0
    with server.client() as client:
        for number in range(count):
            if number % 10 == 0:
                if fault == "client kill":
                    client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                else:
                    client.script_flush()
            await persistently(stage, f"j{number}")
        async with asyncio.timeout(LONG_WAIT):
            while completed < count:
                completed = (await queue.counts())[State.COMPLETED]
                await asyncio.sleep(0.05)
    assert {line[1] for line in stage.lines("quick")} == {f"j{n}" for n in range(count)}
    if fault == "script flush":
        assert len(stage.lines("quick")) == count
    assert "Traceback" not in worker.output_text


async def persistently(stage: Stage, id: str) -> None:
    """Enqueue until it succeeds; the id makes it one job."""
    for _ in range(10):
        try:
            await stage.enqueue("quick", id)
            return
        except StorageUnavailable:
            continue
    raise AssertionError("the storage stays away")


async def test_half_open_connections_are_given_up(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """If connections stop forwarding without a close, runs are kept, and worker and producers reconnect."""
    near = stage.app.queue("quick")
    behind(proxy, stage, "--queues", "slow,quick", lease=6)
    with penstock_sync.Penstock(
        f"redis://{proxy.address}/0?socket_timeout={SILENCE}", namespace=stage.namespace
    ) as blocking:
        await stage.enqueue("slow", "long", {"seconds": 60})
        await stage.line("begin", "long", 1)
        assert await far.queue("other").enqueue(1, id="first")
        assert await asyncio.to_thread(blocking.queue("other").enqueue, 1, id="second")
        assert proxy.silence() >= 4
        await stage.enqueue("quick", "new")
        async with asyncio.timeout(LONG_WAIT):
            logged = await asyncio.gather(
                far.queue("other").enqueue(1, id="a"),
                asyncio.to_thread(blocking.queue("other").enqueue, 1, id="b"),
                near.wait("new"),
                return_exceptions=True,
            )
        assert [isinstance(answer, StorageUnavailable) for answer in logged] == [True, True, False]
        assert (await far.queue("other").enqueue(1, id="a")).status == "queued"
        assert (await asyncio.to_thread(blocking.queue("other").enqueue, 1, id="b")).status == "queued"
    status = await stage.status("slow", "long")
    assert (status.state, status.attempts, status.stalls) == ("running", 1, 0)


async def test_a_worker_recovers_from_a_network_outage_past_its_lease(stage: Stage, proxy: Proxy) -> None:
    """A worker cut off for longer than its lease ends its runs; when the network is back, the job is run again."""
    worker = behind(proxy, stage, "--queues", "slow", lease=2)
    await stage.enqueue("slow", "a", {"seconds": 5})
    pid = int((await stage.line("begin", "a", 1))[-1])
    assert await worker.working() == [pid]
    proxy.silence(new=True)
    await until(lambda: stage.lines("cancelled", "a", 1) or pid not in worker.workers(), 30)
    proxy.heal()
    proxy.cut()
    status = await stage.state("slow", "a", "completed", seconds=LONG_WAIT)
    assert (status.attempts, status.stalls) == (2, 1)
    assert not stage.lines("end", "a", 1)


# producers ---------------------------------------------------------------------------------------


async def test_a_producer_repeats_by_the_same_id(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """After a `StorageUnavailable` the same call with the same id stores one job, and reports the duplicate."""
    proxy.lose_reply(sha("put"))
    with pytest.raises(StorageUnavailable, match=r"cannot reach redis://127\.0\.0\.1"):
        await far.queue("mail").enqueue("hello", id="a")
    again = await far.queue("mail").enqueue("hello", id="a")
    assert (again.status, again.state, bool(again)) == ("duplicate", "queued", False)
    assert [job.id for job in await stage.app.queue("mail").find()] == ["a"]


async def test_a_put_without_an_id_is_retried_by_the_client(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """A job with a generated id is sent again by the client, and stored once."""
    lost = proxy.lose_reply(sha("put"))
    job = await far.queue("mail").enqueue("hello")
    assert lost.happened
    assert job.status == "queued"
    assert [found.id for found in await stage.app.queue("mail").find()] == [job.id]


async def test_many_jobs_can_be_sent_again(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """If one of several round trips is lost, the whole list can be enqueued again."""
    entries = [Entry(n, id=f"j{n}") for n in range(1200)]
    proxy.lose_reply(sha("put"), nth=2)
    with pytest.raises(StorageUnavailable):
        await far.queue("mail").enqueue_many(entries)
    answers = await far.queue("mail").enqueue_many(entries)
    assert [answer.status for answer in answers] == ["duplicate"] * 1000 + ["queued"] * 200
    assert (await stage.app.queue("mail").counts())[State.QUEUED] == 1200


async def test_a_caller_gets_its_answer_whatever_is_lost(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """`call` returns its result although its reply is lost and its connections are cut while it waits."""
    stage.worker("--queues", "slow")
    lost = proxy.lose_reply(sha("put"))
    calling = asyncio.create_task(
        far.queue("slow").call({"log": str(stage.log), "seconds": 0.5}, timeout=LONG_WAIT)
    )  # fmt: skip
    await stage.line("begin")
    assert lost.happened
    proxy.cut()
    assert await calling == "slept"
    assert len(stage.lines("begin")) == 1


async def test_a_reservation_is_settled_once(stage: Stage, proxy: Proxy, far: Penstock) -> None:
    """A reservation whose settle reply is lost is settled again, and recorded once."""
    await stage.enqueue("mail", "a")
    [job] = await far.queue("mail").reserve()
    lost = proxy.lose_reply(sha("settle"))
    await job.complete("sent")
    assert lost.happened
    await job.complete("sent")
    assert (await stage.status("mail", "a")).result == "sent"


async def test_threads_that_share_a_producer_store_each_job_once(stage: Stage, proxy: Proxy) -> None:
    """With many replies lost, jobs without ids from several threads are stored once each."""
    count, threads = 40, 4

    def produce(app: penstock_sync.Penstock) -> list[str]:
        answers = [app.queue("mail").enqueue(number) for number in range(count)]
        assert {answer.status for answer in answers} == {"queued"}
        return [answer.id for answer in answers]

    with penstock_sync.Penstock(f"redis://{proxy.address}/0", namespace=stage.namespace) as app:
        lost = [proxy.lose_reply(sha("put"), nth=7 * number) for number in range(1, 12)]
        made = await asyncio.gather(*(asyncio.to_thread(produce, app) for _ in range(threads)))
    assert all(fault.happened for fault in lost)
    ids = {id for some in made for id in some}
    assert len(ids) == count * threads
    assert (await stage.app.queue("mail").counts())[State.QUEUED] == count * threads
    assert {job.id for job in await stage.app.queue("mail").find(limit=500)} == ids


async def test_a_sync_producer_gets_the_same_errors(stage: Stage, proxy: Proxy) -> None:
    """A sync producer gets the same errors, and can repeat in the same way."""

    def produce() -> list[str]:
        with penstock_sync.Penstock(f"redis://{proxy.address}/0", namespace=stage.namespace) as app:
            proxy.lose_reply(sha("put"))
            with pytest.raises(StorageUnavailable):
                app.queue("mail").enqueue("hello", id="a")
            again = app.queue("mail").enqueue("hello", id="a")
            proxy.lose_reply(sha("put"))
            return [again.status, app.queue("mail").enqueue("hello").status]

    assert await asyncio.to_thread(produce) == ["duplicate", "queued"]
    assert (await stage.app.queue("mail").counts())[State.QUEUED] == 2
