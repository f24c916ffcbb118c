"""`penstock worker ls`: the list of workers."""

from __future__ import annotations

import asyncio

from penstock import Penstock, Worker
from tests.cli.conftest import Cli, wait_for_worker


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


def test_worker_ls_without_workers(cli: Cli) -> None:
    """Without workers, `worker ls` prints how to start one."""
    cli.do(Penstock.queues)
    assert "penstock worker MODULE:APP" in cli.run("worker", "ls").stderr
    assert cli.json("worker", "ls") == []
