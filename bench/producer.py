"""The producer of a measurement, as a process of its own in the environment of the system under test.

`python -m bench.producer bench.peers.huey:Producer` reads requests from its input, one JSON object per line, and
answers each with one. All times are taken here, the same way for every system; an adapter only enqueues, calls and
counts. It needs nothing but the standard library, since peers run it in their environments.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import random
import sys
import time
from collections.abc import Awaitable, Iterator
from importlib.metadata import version
from typing import Any

CHUNK = 1000  # jobs in one bulk call, unless the adapter has a size of its own
CALLERS = 100


def url() -> str:
    """Return the URL of the storage under test."""
    return os.environ["BENCH_URL"]


def address() -> tuple[str, int]:
    """Return host and port of the server under test."""
    host, _, port = url().partition("://")[2].partition(":")
    return host, int(port)


def payload(number: int) -> dict[str, Any]:
    """Return the payload of a job: 50 bytes of JSON."""
    return {"user": 10_000 + number % 90_000, "action": "resize", "size": [640, 480]}


class Adapter:
    """Base of the adapters of a system, whose methods are all plain functions or all coroutines.

    An adapter has `open`, `close`, `enqueue(job)` and `left()`, which returns the number of unfinished jobs. If the
    system offers them it also has `enqueue_many(jobs)` and `call(job)`, which returns the job's `user`. `fill(jobs,
    kind)` enqueues the jobs of a drain if these need ids, groups or priorities.
    """

    package = ""
    chunk = CHUNK

    def version(self) -> str:
        return version(self.package)


class Timer:
    """Wall and CPU time of the block inside `with`."""

    def __enter__(self) -> Timer:
        self._cpu, self._start = time.process_time(), time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds, self.cpu = time.perf_counter() - self._start, time.process_time() - self._cpu

    def answer(self, count: int) -> dict[str, Any]:
        return {"seconds": self.seconds, "cpu": self.cpu, "count": count}


def chunks(jobs: list[Any], size: int) -> Iterator[list[Any]]:
    for at in range(0, len(jobs), size):
        yield jobs[at : at + size]


def pauses(count: int, pause: float, budget: float) -> Iterator[float]:
    """Yield random pauses of about `pause` seconds, at most `count`, until the budget in seconds is used up."""
    until = time.monotonic() + budget
    for _ in range(count):
        if time.monotonic() >= until:
            return
        yield pause * random.uniform(0.5, 1.5)


class SyncDriver:
    """Requests of the harness, carried out by an adapter of plain functions."""

    def __init__(self, adapter: Any) -> None:
        self._adapter = adapter

    def open(self) -> dict[str, Any]:
        self._adapter.open()
        return {"version": self._adapter.version(), "loop": None, "can": _offers(self._adapter)}

    def fill(self, count: int, kind: str = "plain") -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            if hasattr(self._adapter, "fill"):
                self._adapter.fill(jobs, kind)
            elif hasattr(self._adapter, "enqueue_many"):
                for chunk in chunks(jobs, self._adapter.chunk):
                    self._adapter.enqueue_many(chunk)
            else:
                for job in jobs:
                    self._adapter.enqueue(job)
        return timer.answer(count)

    def enqueue(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for job in jobs:
                self._adapter.enqueue(job)
        return timer.answer(count)

    def many(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for chunk in chunks(jobs, self._adapter.chunk):
                self._adapter.enqueue_many(chunk)
        return timer.answer(count)

    def call(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        taken: list[int] = []
        with Timer() as timer:
            for seconds in pauses(count, pause, budget):
                time.sleep(seconds)
                job = payload(len(taken))
                start = time.perf_counter_ns()
                answer = self._adapter.call(job)
                taken.append(time.perf_counter_ns() - start)
                _check(answer, job)
        return {**timer.answer(len(taken)), "taken": taken}

    def stamp(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        sent = 0
        for seconds in pauses(count, pause, budget):
            time.sleep(seconds)
            self._adapter.enqueue({**payload(sent), "at": time.monotonic_ns()})
            sent += 1
        return {"count": sent}

    def left(self) -> dict[str, Any]:
        return {"left": self._adapter.left()}

    def close(self) -> dict[str, Any]:
        self._adapter.close()
        return {}


class AsyncDriver:
    """Requests of the harness, carried out by an adapter of coroutines."""

    def __init__(self, adapter: Any, loop: str) -> None:
        self._adapter = adapter
        self._loop = loop

    async def open(self) -> dict[str, Any]:
        await self._adapter.open()
        return {"version": self._adapter.version(), "loop": self._loop, "can": _offers(self._adapter)}

    async def fill(self, count: int, kind: str = "plain") -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            if hasattr(self._adapter, "fill"):
                await self._adapter.fill(jobs, kind)
            elif hasattr(self._adapter, "enqueue_many"):
                for chunk in chunks(jobs, self._adapter.chunk):
                    await self._adapter.enqueue_many(chunk)
            else:
                await self._enqueue_concurrently(jobs, 20)
        return timer.answer(count)

    async def enqueue(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for job in jobs:
                await self._adapter.enqueue(job)
        return timer.answer(count)

    async def callers(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            await self._enqueue_concurrently(jobs, CALLERS)
        return timer.answer(count)

    async def many(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for chunk in chunks(jobs, self._adapter.chunk):
                await self._adapter.enqueue_many(chunk)
        return timer.answer(count)

    async def call(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        taken: list[int] = []
        with Timer() as timer:
            for seconds in pauses(count, pause, budget):
                await asyncio.sleep(seconds)
                job = payload(len(taken))
                start = time.perf_counter_ns()
                answer = await self._adapter.call(job)
                taken.append(time.perf_counter_ns() - start)
                _check(answer, job)
        return {**timer.answer(len(taken)), "taken": taken}

    async def stamp(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        sent = 0
        for seconds in pauses(count, pause, budget):
            await asyncio.sleep(seconds)
            await self._adapter.enqueue({**payload(sent), "at": time.monotonic_ns()})
            sent += 1
        return {"count": sent}

    async def left(self) -> dict[str, Any]:
        return {"left": await self._adapter.left()}

    async def close(self) -> dict[str, Any]:
        await self._adapter.close()
        return {}

    async def _enqueue_concurrently(self, jobs: list[dict[str, Any]], callers: int) -> None:
        """Enqueue the jobs from concurrent callers, each awaiting one job before the next."""
        todo = iter(jobs)

        async def caller() -> None:
            for job in todo:
                await self._adapter.enqueue(job)

        await asyncio.gather(*(caller() for _ in range(callers)))


def _offers(adapter: Any) -> list[str]:
    return [name for name in ("enqueue", "enqueue_many", "call", "left") if hasattr(adapter, name)]


def _check(answer: Any, job: dict[str, Any]) -> None:
    if answer != job["user"]:
        raise RuntimeError(f"called with {job}, got {answer!r}")


def _serve_sync(adapter: Any, answers: Any) -> None:
    driver = SyncDriver(adapter)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(driver, request.pop("do"))(**request)), file=answers, flush=True)


async def _serve(adapter: Any, answers: Any) -> None:
    loop = asyncio.get_running_loop()
    driver = AsyncDriver(adapter, type(loop).__module__.partition(".")[0])
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        work: Awaitable[dict[str, Any]] = getattr(driver, request.pop("do"))(**request)
        print(json.dumps(await work), file=answers, flush=True)


def _loop_factory() -> Any:
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


def main(path: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # output of a library goes to stderr: on stdout it would be taken for an answer
    module, _, name = path.partition(":")
    adapter = getattr(importlib.import_module(module), name)()
    if inspect.iscoroutinefunction(adapter.enqueue):
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(adapter, answers))
    else:
        _serve_sync(adapter, answers)


if __name__ == "__main__":
    main(sys.argv[1])
