"""`penstock worker ls`, `quiet` and `stop`: the list of workers, and requests to them."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

from penstock import Penstock, State, Worker, WorkerInfo
from penstock.cli.workers import load_cell, worker_row
from tests.cli.conftest import Cli, wait_for_worker
from tests.support import eventually


def test_a_running_worker_is_listed(cli: Cli) -> None:
    """`queue ls` and `worker ls` list a running worker and the queue that it serves."""

    async def look(app: Penstock) -> None:
        @app.handler("served")
        async def served(payload: int) -> None: ...

        async with Worker(app, id="w1"):
            await wait_for_worker(app)
            [view] = await asyncio.to_thread(cli.json, "queue", "ls")
            assert (view["name"], view["workers"]) == ("served", ["w1"])
            [worker] = await asyncio.to_thread(cli.json, "worker", "ls")
            assert (worker["id"], worker["queues"], worker["capacity"]) == ("w1", ["served"], 100)
            line = (await asyncio.to_thread(cli.ok, "worker", "ls")).splitlines()[1]
            assert line.split()[0] == "w1"
            assert "0/100" in line

    cli.do(look)


def test_a_worker_is_asked_to_claim_no_more_and_to_stop(cli: Cli) -> None:
    """`worker quiet` and `stop` reach a worker, are in the activity, and name a worker that does not exist."""

    async def ask(app: Penstock) -> None:
        release = asyncio.Event()

        @app.handler("served")
        async def served(payload: int) -> None:
            await release.wait()

        worker = Worker(app, id="w1")
        async with worker:
            await app.queue("served").enqueue(1)
            await eventually_running(app)
            error = await asyncio.to_thread(cli.fails, "worker", "quiet", "w1", "w2")
            assert (
                error
                == "Error: there is no live worker 'w2'; nothing was asked; `penstock worker ls` lists the live ones"
            )
            assert not any(each.quiet for each in await app.workers())
            assert await asyncio.to_thread(cli.ok, "worker", "quiet", "w1") == "w1: claims no more jobs\n"

            async def is_quiet() -> bool:
                return any(each.quiet for each in await app.workers())

            await eventually(is_quiet, within=20)
            assert "w1 (quiet)" in await asyncio.to_thread(cli.ok, "worker", "ls")
            assert "Stop 1 worker: w1?" in await asyncio.to_thread(cli.fails, "worker", "stop", "--all", code=2)
            asked = await asyncio.to_thread(cli.json, "worker", "stop", "--all", "--yes")
            assert asked == {"request": "stop", "workers": ["w1"]}
            release.set()
            await worker.wait_stopped()

    cli.do(ask)
    entries = cli.json("activity")["entries"]
    assert [(entry["verb"], entry["target"], entry["ids"]) for entry in reversed(entries)] == [
        ("worker quiet", "w1 w2", []), ("worker quiet", "w1", []), ("worker stop", "", []),
    ]  # fmt: skip
    assert cli.fails("worker", "stop", "--all", "--yes") == "Error: there are no workers here"
    assert "ids of workers, or --all" in cli.run("worker", "quiet").stderr


async def eventually_running(app: Penstock) -> None:
    """Wait until a worker has a run."""

    async def runs() -> bool:
        return (await app.queue("served").counts())[State.RUNNING] == 1 and bool(await app.workers())

    await eventually(runs, within=20)


def worker_info(**fields: Any) -> WorkerInfo:
    """Return a worker with these facts."""
    now = datetime(2030, 1, 2, tzinfo=UTC)
    facts: dict[str, Any] = {
        "id": "w", "host": "h", "pid": 1, "processes": [], "queues": [], "capacity": 100, "allowed": 100, "busy": 0,
        "memory": 0, "lease_age": None, "running": 0, "runs": [], "started_at": None, "seen_at": now, "until": now,
    }  # fmt: skip
    return WorkerInfo(**{**facts, **fields})


def test_runs_of_concurrency_count_as_load() -> None:
    """Runs of handlers with `concurrency=n` hold no units: they are shown beside them, and fill the bar."""
    full = worker_info(slots=4, slots_used=4, running=4)
    assert load_cell(full, bars=False) == ("0/100 + 4/4", "red")
    assert load_cell(full, bars=True).text == "██████████ 0/100 + 4/4"
    assert load_cell(worker_info(busy=50, slots=4, slots_used=1), bars=True).text == "█████░░░░░ 50/100 + 1/4"
    assert load_cell(worker_info(busy=50), bars=False) == ("50/100", "green")


def test_an_id_of_two_workers_is_marked() -> None:
    """The id of a worker that another one has too is marked."""
    assert worker_row(worker_info(duplicate=True), datetime(2030, 1, 2, tzinfo=UTC))[0] == (
        "w (id used twice)",
        "bold red",
    )
    assert worker_row(worker_info(), datetime(2030, 1, 2, tzinfo=UTC))[0] == ("w", "bold")
    assert worker_row(worker_info(quiet=True), datetime(2030, 1, 2, tzinfo=UTC))[0] == ("w (quiet)", "yellow")


def test_worker_ls_without_workers(cli: Cli) -> None:
    """Without workers, `worker ls` prints how to start one."""
    cli.do(Penstock.queues)
    assert "penstock worker MODULE:APP" in cli.run("worker", "ls").stderr
    assert cli.json("worker", "ls") == []
