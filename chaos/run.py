"""One run: start everything, let the faults have their way, heal, wait until all is done, and look at what is left."""

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

from chaos.faults import draw_faults
from chaos.places import Place
from chaos.processes import ROOT
from chaos.queues import NAMESPACE
from chaos.recorder import number_of
from chaos.scenarios import FAULTS, TAKING_TURNS
from chaos.stage import Settings, Stage
from penstock import JobError, Penstock, State, StorageError, StorageUnavailable
from penstock.model.failure import FailureSerde
from penstock.model.job import FINISHED, Snapshot

__all__ = ["Run", "look"]

#: How long (seconds) a storage may be away when no fault is under way.
REACH = 60.0

UNFINISHED = tuple(state for state in State if state not in FINISHED)


class Run:
    """A run and its outcome in `folder`: the history, the outputs of all processes, and how it went."""

    def __init__(self, settings: Settings, place: Place, folder: Path) -> None:
        self.settings = settings
        self.place = place
        self.stage = Stage(settings, place, folder)
        self.faults: Counter[str] = Counter()
        self.stuck = False

    async def go(self) -> None:
        """The whole run; what came of it is in the history."""
        stage, began = self.stage, time.monotonic()
        try:
            self.before = set(await self._prepare())
            stage.note(
                "run", seed=self.settings.seed, storage=self.place.describe(), lease=self.settings.lease,
                durability=self.settings.durability,
            )  # fmt: skip
            await self._start()
            await asyncio.gather(self._faults(began), self._tend(began))
            stage.note("healed")
            await self._finish()
            await self._look()
        finally:
            stage.end()

    async def _prepare(self) -> list[str]:
        """Create the storage, and see what it holds before anything happens."""
        async with reached(self.place.url) as app:
            await app.workers()
        return self.place.leftovers()

    async def _start(self) -> None:
        stage, settings = self.stage, self.settings
        stage.start_witness()
        for seat in range(settings.workers):
            stage.start_worker(f"w{seat}")
        for seat in range(settings.producers):
            share = settings.jobs // settings.producers + (seat < settings.jobs % settings.producers)
            stage.start_producer(seat, share)

    # faults ---------------------------------------------------------------------------------------

    def _weights(self) -> dict[str, float]:
        weights, chosen = self.place.weights, self.settings.fault_kinds
        return weights if chosen is None else {name: weights.get(name, 1.0) for name in chosen}

    async def _faults(self, began: float) -> None:
        """Faults at random moments, spread over the time of the run; some of them overlap."""
        settings, draw = self.settings, random.Random(f"{self.settings.seed}/times")
        times = sorted(draw.uniform(2.0, settings.seconds) for _ in range(settings.faults))
        chosen = draw_faults(str(settings.seed), settings.faults, self._weights()) if settings.faults else []
        # Those that take turns at the server or the disk wait for each other, and keep nobody else waiting.
        room, turns = asyncio.Semaphore(4), asyncio.Semaphore(settings.faults)
        async with asyncio.TaskGroup() as tasks:
            for at, (name, seed) in zip(times, chosen, strict=True):
                await asyncio.sleep(max(0.0, began + at - time.monotonic()))
                place = turns if name in TAKING_TURNS else room
                await place.acquire()
                tasks.create_task(self._fault(name, random.Random(seed), place))

    async def _fault(self, name: str, draw: random.Random, room: asyncio.Semaphore) -> None:
        async with self.stage.serving if name in TAKING_TURNS else contextlib.nullcontext():
            await self._do(name, draw, room)

    async def _do(self, name: str, draw: random.Random, room: asyncio.Semaphore) -> None:
        number = sum(self.faults.values())
        self.faults[name] += 1
        self.stage.note("fault", name=name, number=number)
        try:
            about = await FAULTS[name](self.stage, draw)
        except (OSError, StorageError, TimeoutError) as error:
            about = {"error": f"{type(error).__name__}: {error}"}
        except Exception as error:
            # A server that is away cannot be asked: the fault did not happen, another one is under way.
            if type(error).__module__.partition(".")[0] != "redis":
                raise
            about = {"error": f"{type(error).__name__}: {error}"}
        finally:
            room.release()
        self.stage.note("fault_over", name=name, number=number, **about)

    async def _tend(self, began: float) -> None:
        """Raise the pace, and start again what was killed, until the producers are done and so are the faults."""
        stage, settings = self.stage, self.settings
        producing = True
        while producing or sum(self.faults.values()) < settings.faults:
            share = (time.monotonic() - began + 3) / max(settings.seconds, 1)
            stage.pace.allowed = settings.jobs + 1 if share >= 1 else round(settings.jobs * share)
            stage.bury()
            producing = stage.tend_producers()
            await asyncio.sleep(0.05)

    # the end --------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        """No more faults: everything must be done before long, and the workers must end when told to."""
        await asyncio.to_thread(self.place.heal)
        async with reached(self.place.url) as app:
            for number, queue in enumerate(await app.queues()):
                self.stage.note("switch", s=number, q=queue, paused=False)
                await app.queue(queue).resume()
                self.stage.note("switched", s=number)
            await self._wait(app)
        stage = self.stage
        for worker in stage.workers:
            worker.signal(signal.SIGTERM)
        stage.retired += stage.workers
        stage.workers.clear()
        until = time.monotonic() + 40
        while stage.retired and time.monotonic() < until:
            stage.bury()
            await asyncio.sleep(0.05)
        stage.wrong_exits += [f"{worker.name} does not end" for worker in stage.retired]
        for process in stage.others:
            process.signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(process.wait, 20)
        stage.note("exits", wrong=stage.wrong_exits)

    async def _wait(self, app: Penstock) -> None:
        """Until nothing is left to do; given up when nothing has changed for a long while."""
        last, since = None, time.monotonic()
        while True:
            self.stage.bury()
            counts = [await app.queue(queue).counts() for queue in await app.queues()]
            if not any(each[state] for each in counts for state in UNFINISHED):
                return
            if counts != last:
                last, since = counts, time.monotonic()
            elif time.monotonic() - since > self.settings.patience:
                self.stuck = True
                self.stage.note("stuck", counts=[dict(each) for each in counts])
                return
            await asyncio.sleep(0.2)

    async def _look(self) -> None:
        """Write down every job as the storage has it; then let all TTLs pass and see what is left."""
        async with reached(self.place.url) as app:
            await look(app, self.stage.note)
        command = [sys.executable, "-m", "chaos.later", self.place.url]
        everything = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        await asyncio.to_thread(subprocess.run, command, env=everything, cwd=ROOT, check=True)
        left = [each for each in self.place.leftovers() if each not in self.before]
        self.stage.note("left", count=len(left), what=left[:50])


@asynccontextmanager
async def reached(url: str) -> AsyncGenerator[Penstock]:
    """The runner's own app, once the storage answers."""
    app, until = Penstock(url, namespace=NAMESPACE), time.monotonic() + REACH
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


async def look(app: Penstock, note: Callable[..., None]) -> None:
    """Write down every job as the storage has it."""
    for queue in await app.queues():
        cursor: str | None = None
        while True:
            page = await app.storage.find(queue, None, cursor, 1000)
            for job in page.jobs:
                note("final", **spell(app, job))
            cursor = page.cursor
            if cursor is None:
                break


def spell(app: Penstock, job: Snapshot) -> dict[str, Any]:
    """What the checker wants to know of a job as the storage has it."""
    about: dict[str, Any] = {
        "q": job.queue, "id": job.id, "state": job.state, "n": number_of(job.payload), "group": job.group,
        "counts": [job.attempts, job.retries, job.stalls, job.timeouts],
    }  # fmt: skip
    if job.result:
        result = app.codec(job.queue).result.loads(job.result, Any)
        if isinstance(result, dict):
            about["tok"] = result.get("tok")
    if job.queue.endswith("/failures"):
        failure = FailureSerde(app.codec("plain").payload).loads(job.payload, Any)
        about["of"] = [failure.job.queue, failure.job.id, failure.job.fence, failure.error.kind.value]
    if job.error and job.state is State.FAILED:
        about["kind"] = JobError.decode(job.error).kind.value
    return about
