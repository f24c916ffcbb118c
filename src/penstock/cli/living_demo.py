"""`penstock demo --dashboard`: jobs that come and go, to look at in the dashboard."""

from __future__ import annotations

import asyncio
import contextlib
import random
import signal
import subprocess
import sys

from penstock import Cron, Entry, Job, Limit, Penstock, PermanentError, Worker

__all__ = ["run_living_demo"]

NAMESPACE = "penstock-demo"

#: Seconds between two groups of new jobs.
INTERVAL = 0.5


def run_living_demo(url: str) -> None:
    """Serve the dashboard and run jobs until Ctrl-C."""
    command = [sys.executable, "-m", "penstock", "dashboard", "--url", url, "--namespace", NAMESPACE]
    asyncio.run(prepare(url))
    dashboard = subprocess.Popen(command)
    try:
        with contextlib.suppress(KeyboardInterrupt, asyncio.CancelledError):
            asyncio.run(live(url))
    finally:
        dashboard.terminate()
        dashboard.wait()


async def prepare(url: str) -> None:
    """Create the storage, with a schedule and a limit."""
    async with Penstock(url, namespace=NAMESPACE) as app:
        await app.queue("reports").schedules.put("nightly", Cron("0 3 * * *"), payload={"month": "last"})
        await app.queue("mail").set_limit(Limit(concurrency=20, rate="100/s", burst=20))


async def live(url: str) -> None:
    """Enqueue jobs of several kinds and run them."""
    async with Penstock(url, namespace=NAMESPACE) as app:
        add_handlers(app)
        worker = Worker(app, capacity=50)
        tasks = [asyncio.create_task(worker.run()), asyncio.create_task(produce(app))]
        try:
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, tasks[1].cancel)
            await asyncio.gather(*tasks)
        finally:
            await worker.stop(0)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def produce(app: Penstock) -> None:
    """Enqueue a few jobs of each kind, again and again."""
    number = 0
    while True:
        number += 1
        await app.queue("mail").enqueue_many(
            [Entry({"to": f"user{n}@example.org", "token": "secret"}) for n in range(random.randint(2, 12))]
        )
        await app.queue("orders").enqueue({"order": number}, group=f"customer-{number % 5}")
        if number % 10 == 0:
            await app.queue("reports").enqueue({"month": number // 10})
        if number % 40 == 0:
            await app.queue("unserved").enqueue({"n": number})
        await asyncio.sleep(INTERVAL)


def add_handlers(app: Penstock) -> None:
    """Register handlers that take a while, and fail now and then."""

    @app.handler("mail", size=1, max_retries=2, min_backoff=1)
    async def send(payload: dict[str, str], job: Job) -> str:
        await asyncio.sleep(random.expovariate(5))
        if random.random() < 0.03:
            raise ConnectionError(f"host {random.randint(1, 9)} is not reachable")
        if random.random() < 0.01:
            raise PermanentError("the address is not valid")
        return "sent"

    @app.handler("orders", size=5, min_backoff=1)
    async def order(payload: dict[str, int], job: Job) -> None:
        await asyncio.sleep(random.uniform(0.1, 1.5))
        if random.random() < 0.05:
            raise TimeoutError("the payment did not answer")

    @app.handler("reports", size=10, timeout=60)
    async def report(payload: dict[str, str | int], job: Job) -> dict[str, int]:
        for step in range(20):
            job.progress(step / 20, f"page {step}")
            await asyncio.sleep(0.4)
        return {"pages": 20}

    del send, order, report  # the app keeps them
