"""One chaos run: start the processes, apply the faults, wait until all jobs are finished, and read the storage."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from chaos.failover_faults import EXCLUSIVE, FAULTS
from chaos.faults import draw_faults
from chaos.log import Log
from chaos.processes import ROOT
from chaos.queues import NAMESPACE
from chaos.recorder import number_of, record
from chaos.setup import Settings, Setup
from chaos.storages import OF_CLIENT_CLOCKS, OF_LIMITS, StorageUnderTest
from chaos.stored_settings import record_stored_schedules, stop_schedules
from penstock import JobError, Penstock, State, StorageError, StorageUnavailable
from penstock.model.failure import FailureSerde
from penstock.model.job import FINISHED, Snapshot

__all__ = ["ChaosRun", "record_stored_jobs"]

#: Seconds that a storage may be unavailable while no fault is under way.
OPEN_TIMEOUT = 60.0

UNFINISHED = tuple(state for state in State if state not in FINISHED)


class ChaosRun:
    """A run that writes its history and the outputs of its processes to `folder`."""

    def __init__(self, settings: Settings, storage: StorageUnderTest, folder: Path) -> None:
        self.settings = settings
        self.storage = storage
        self.setup = Setup(settings, storage, folder)
        self.faults: Counter[str] = Counter()
        self.stuck = False

    async def execute(self) -> None:
        """Carry out the whole run; its outcome is in the history."""
        setup, began = self.setup, time.monotonic()
        try:
            self.keys_before = set(await self._prepare())
            setup.record(
                "settings", seed=self.settings.seed, storage=self.storage.describe(), lease=self.settings.lease,
                durability=self.settings.durability,
            )  # fmt: skip
            await self._start()
            await asyncio.gather(self._faults(began), self._supervise(began))
            setup.record("healed")
            await self._finish()
            await self._record_final_state()
        finally:
            setup.close()

    async def _prepare(self) -> list[str]:
        """Create the schema; return the keys or rows that exist before the first job."""
        async with open_app(self.storage.url) as app:
            await app.workers()
        return self.storage.leftovers()

    async def _start(self) -> None:
        setup, settings = self.setup, self.settings
        setup.start_event_watcher()
        for slot in range(settings.workers):
            setup.start_worker(f"w{slot}")
        for slot in range(settings.producers):
            share = settings.jobs // settings.producers + (slot < settings.jobs % settings.producers)
            setup.start_producer(slot, share)

    # faults ---------------------------------------------------------------------------------------

    def _weights(self) -> dict[str, float]:
        weights, chosen = self.storage.weights, self.settings.fault_kinds
        if self.settings.schedules:
            weights = weights | OF_LIMITS | ({} if self.storage.own_clock else OF_CLIENT_CLOCKS)
        return weights if chosen is None else {name: weights.get(name, 1.0) for name in chosen}

    async def _faults(self, began: float) -> None:
        """Apply faults at random moments, spread over the time of the run; up to four overlap."""
        settings, draw = self.settings, random.Random(f"{self.settings.seed}/times")
        times = sorted(draw.uniform(2.0, settings.seconds) for _ in range(settings.faults))
        chosen = draw_faults(str(settings.seed), settings.faults, self._weights()) if settings.faults else []
        # Exclusive faults wait for each other at `storage_lock`; a slot held meanwhile would delay the other faults.
        slots, exclusive_slots = asyncio.Semaphore(4), asyncio.Semaphore(settings.faults)
        async with asyncio.TaskGroup() as tasks:
            for at, (name, seed) in zip(times, chosen, strict=True):
                await asyncio.sleep(max(0.0, began + at - time.monotonic()))
                free = exclusive_slots if name in EXCLUSIVE else slots
                await free.acquire()
                tasks.create_task(self._fault(name, random.Random(seed), free))

    async def _fault(self, name: str, draw: random.Random, slots: asyncio.Semaphore) -> None:
        async with self.setup.storage_lock if name in EXCLUSIVE else contextlib.nullcontext():
            await self._apply(name, draw, slots)

    async def _apply(self, name: str, draw: random.Random, slots: asyncio.Semaphore) -> None:
        number = sum(self.faults.values())
        self.faults[name] += 1
        self.setup.record("fault", name=name, number=number)
        try:
            about = await FAULTS[name](self.setup, draw)
        except (OSError, StorageError, TimeoutError) as error:
            about = {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:
            # The server does not answer because another fault is under way: this one did not happen.
            if type(error).__module__.partition(".")[0] != "redis":
                raise
            about = {"error": f"{type(error).__name__}: {error}"}
        finally:
            slots.release()
        self.setup.record("fault_over", name=name, number=number, **about)

    async def _supervise(self, began: float) -> None:
        """Raise the enqueue limit and restart killed processes until all producers and all faults are done."""
        setup, settings = self.setup, self.settings
        producing = True
        while producing or sum(self.faults.values()) < settings.faults:
            share = (time.monotonic() - began + 3) / max(settings.seconds, 1)
            setup.enqueue_limit.allowed = settings.jobs + 1 if share >= 1 else round(settings.jobs * share)
            setup.collect_exited()
            producing = setup.restart_producers()
            await asyncio.sleep(0.05)

    # after the faults -----------------------------------------------------------------------------

    async def _finish(self) -> None:
        """End the faults, wait until all jobs are finished, and stop the workers with SIGTERM."""
        await asyncio.to_thread(self.storage.heal)
        self.setup.set_clock(0)
        async with open_app(self.storage.url, self.setup.log) as app:
            for number, queue in enumerate(await app.queues()):
                self.setup.record("set_pause", s=number, q=queue, paused=False)
                await app.queue(queue).resume()
                self.setup.record("set_pause_answer", s=number)
            if self.settings.schedules:
                await stop_schedules(app)
            await self._wait_until_finished(app)
        setup = self.setup
        for worker in setup.workers:
            worker.signal(signal.SIGTERM)
        setup.retired += setup.workers
        setup.workers.clear()
        until = time.monotonic() + 40
        while setup.retired and time.monotonic() < until:
            setup.collect_exited()
            await asyncio.sleep(0.05)
        setup.wrong_exits += [f"{worker.name} does not exit" for worker in setup.retired]
        for process in setup.others:
            process.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, 20)
        setup.record("exits", wrong=setup.wrong_exits)

    async def _wait_until_finished(self, app: Penstock) -> None:
        """Wait until no job is unfinished; give up when the counts have not changed for `settings.timeout`."""
        last, since = None, time.monotonic()
        while True:
            self.setup.collect_exited()
            counts = [await app.queue(queue).counts() for queue in await app.queues()]
            if not any(each[state] for each in counts for state in UNFINISHED):
                return
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() - since > self.settings.timeout:
                self.stuck = True
                self.setup.record("stuck", counts=[dict(each) for each in counts])
                return
            await asyncio.sleep(0.2)

    async def _record_final_state(self) -> None:
        """Record every job as stored; then let all TTLs pass and record the keys or rows that are left."""
        async with open_app(self.storage.url) as app:
            await record_stored_jobs(app, self.setup.record)
            if self.settings.schedules:
                await record_stored_schedules(app, self.setup.record)
        command = [sys.executable, "-m", "chaos.purge_expired", self.storage.url]
        everything = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        await asyncio.to_thread(subprocess.run, command, env=everything, cwd=ROOT, check=True)
        left = [each for each in self.storage.leftovers() if each not in self.keys_before]
        self.setup.record("leftovers", count=len(left), what=left[:50])


@asynccontextmanager
async def open_app(url: str, log: Log | None = None) -> AsyncGenerator[Penstock]:
    """Yield the runner's own app, opened when the storage answers; what it does is recorded if there is a log."""
    app, until = Penstock(url, namespace=NAMESPACE), time.monotonic() + OPEN_TIMEOUT
    if log is not None:
        record(app, log)
    while True:
        try:
            await app.open()
            break
        except StorageUnavailable:
            if time.monotonic() > until:
                raise
            await asyncio.sleep(0.2)
    try:
        yield app
    finally:
        await app.close()


async def record_stored_jobs(app: Penstock, record: Callable[..., None]) -> None:
    """Record every job as stored."""
    for queue in await app.queues():
        cursor: str | None = None
        while True:
            page = await app.storage.find(queue, None, cursor, 1000)
            for job in page.jobs:
                record("final", **describe_job(app, job))
            cursor = page.cursor
            if cursor is None:
                break


def describe_job(app: Penstock, job: Snapshot) -> dict[str, Any]:
    """Return the facts of a stored job that the checker needs."""
    about: dict[str, Any] = {
        "q": job.queue, "id": job.id, "state": job.state, "n": number_of(job.payload), "group": job.group,
        "counts": [job.attempts, job.retries, job.stalls, job.timeouts],
    }  # fmt: skip
    if job.result:
        result = app.codec(job.queue).result.loads(job.result, Any)
        if isinstance(result, dict):
            about["tok"] = result.get("tok")
    if job.queue.endswith("/failures"):
        queue = job.queue.removesuffix("/failures")
        failure = FailureSerde(queue, app.codec(queue)).loads(job.payload, Any)
        about["of"] = [failure.job.queue, failure.job.id, failure.job.fence, failure.error.kind.value]
    if job.error and job.state is State.FAILED:
        about["kind"] = JobError.decode(job.error).kind.value
    return about
