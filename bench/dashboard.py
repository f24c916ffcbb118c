"""Workload `dashboard`: the time that each page of the dashboard spends in the storage, with few jobs and with many.

`dashboard/PAGE/COUNT` are milliseconds of CPU time, of this process while it asks the storage and of the server: on a
machine that is not idle this differs less from run to run than time does. `reading` is the read of all queues that is
repeated while a page is open. A page that takes more than `MOST` is reported as a failure.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

import httpx

from bench.cases import Sample, record
from bench.many_jobs import LARGEST_KEY, QUEUE, WORKER, add_schedules, fill
from bench.results import REPETITIONS, Measurements
from bench.storages import BenchStorage
from bench.systems import penstock_system
from penstock import Penstock
from penstock._version import __version__
from penstock.dashboard import Dashboard, anyone
from penstock.dashboard import reader as reader_module
from penstock.model.job import State
from penstock.storage import connect

__all__ = ["PAGES", "ids_of", "pages_of", "run"]

#: The longest time (ms) of a page in the storage.
MOST = 100.0

#: Requests of a page, of which the cheapest counts.
TRIES = 5

#: The pages; `{job}`, `{failed}` and `{key}` stand for a queued job, a failed one and an error group.
PAGES = {
    "overview": "/",
    "queues": "/queues",
    "queue": f"/queue?name={QUEUE}",
    "queue groups": f"/queue?name={QUEUE}&tab=groups",
    "queue failures": f"/queue?name={QUEUE}&tab=failures",
    "queue limits": f"/queue?name={QUEUE}&tab=limits",
    "queue schedules": f"/queue?name={QUEUE}&tab=schedules",
    "jobs": "/jobs",
    "jobs queued": f"/jobs?filter=queue:{QUEUE}+state:queued",
    "jobs newest failed": f"/jobs?filter=queue:{QUEUE}+state:failed&newest=1",
    "jobs by id": "/jobs?filter=id:{job}",
    "jobs by payload": f"/jobs?filter=queue:{QUEUE}+payload.to:nobody",
    "job": f"/job?queue={QUEUE}&id={{job}}",
    "job failed": f"/job?queue={QUEUE}&id={{failed}}",
    "groups": f"/groups?queue={QUEUE}",
    "group": f"/group?queue={QUEUE}&name=customer-1",
    "workers": "/workers",
    "worker": f"/worker?id={WORKER}",
    "failures": "/failures",
    "error group": f"/error-group?queue={QUEUE}&key={{key}}",
    "schedules": "/schedules",
    "limits": "/limits",
    "doctor": "/doctor",
    "activity": "/activity",
    "new job": f"/new?queue={QUEUE}",
    "history": "/history?span=14d",
}


class StorageTime:
    """The CPU time (seconds) of this process while a storage is asked, and of its server."""

    def __init__(self, bench_storage: BenchStorage, *storages: Any) -> None:
        self._bench_storage = bench_storage
        self._seconds, self._active, self._since = 0.0, 0, 0.0
        for storage in storages:
            for name, method in inspect.getmembers(storage, inspect.iscoroutinefunction):
                if not name.startswith("_"):
                    setattr(storage, name, self._timed(method))

    @property
    def seconds(self) -> float:
        """The time until now."""
        server = self._bench_storage.info("cpu")
        return self._seconds + server.get("used_cpu_user", 0.0) + server.get("used_cpu_sys", 0.0)

    def _timed(self, method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(method)
        async def timed(*args: Any, **options: Any) -> Any:
            if not self._active:
                self._since = time.process_time()
            self._active += 1
            try:
                return await method(*args, **options)
            finally:
                self._active -= 1
                if not self._active:
                    self._seconds += time.process_time() - self._since

        return timed


async def ids_of(storage: Any) -> dict[str, str]:
    """Return the values of the placeholders in `PAGES`."""
    [job] = (await storage.find(QUEUE, State.QUEUED, None, 1)).jobs
    [failed] = (await storage.find(QUEUE, State.FAILED, None, 1)).jobs
    return {"job": quote(job.id), "failed": quote(failed.id), "key": LARGEST_KEY}


def pages_of(ids: dict[str, str]) -> dict[str, str]:
    """Return the pages with ids."""
    return {name: path.format(**ids) for name, path in PAGES.items()}


async def _measure(bench_storage: BenchStorage, tries: int) -> dict[str, float]:
    """Return the milliseconds of each page in the storage."""
    app = Penstock(bench_storage.url)
    spent = StorageTime(bench_storage, app.producer_storage)
    dashboard = Dashboard(app, auth=anyone("admin"))
    found: dict[str, float] = {}
    async with (
        app,
        httpx.AsyncClient(transport=httpx.ASGITransport(app=dashboard), base_url="http://localhost") as client,
    ):
        pages = pages_of(await ids_of(app.storage))
        await client.get("/")
        for name, path in pages.items():
            for _ in range(tries):
                before = spent.seconds
                answer = await client.get(path)
                assert answer.status_code == 200, (path, answer.text)
                found[name] = min(found.get(name, 1e9), (spent.seconds - before) * 1000)
        for _ in range(tries):
            before = spent.seconds
            await dashboard.reader.refresh()
            found["reading"] = min(found.get("reading", 1e9), (spent.seconds - before) * 1000)
        await dashboard.close()
    return found


async def _run(bench_storage: BenchStorage, measurements: Measurements, sizes: tuple[int, ...]) -> list[str]:
    failures: list[str] = []
    about = {"version": __version__, "loop": None}
    for count in sizes:
        bench_storage.clear()
        filled = connect(bench_storage.url)
        await filled.open()
        await fill(filled, count)
        await filled.close()
        async with Penstock(bench_storage.url) as app:
            await add_schedules(app)
        for _ in range(REPETITIONS):
            for name, value in (await _measure(bench_storage, TRIES)).items():
                sample = Sample(f"dashboard/{name}/{count}", "ms", value, jobs=count)
                record(measurements, penstock_system(), bench_storage, about, sample)
        for line in measurements.lines():
            mine = line["storage"] == bench_storage.kind and line["workload"].endswith(f"/{count}")
            if mine and line["spread"][0] > MOST:
                failures.append(f"{line['workload']} took {line['spread'][0]} ms in {bench_storage.kind}")
    return failures


def run(bench_storage: BenchStorage, measurements: Measurements, full: bool) -> list[str]:
    """Measure every page."""
    reader_module.INTERVAL = reader_module.MAX_PAUSE = 3600.0  # no reading beside the requests
    return asyncio.run(_run(bench_storage, measurements, (100, 1_000_000 if full else 50_000)))
