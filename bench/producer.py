"""The asking side of a measurement, as a process of its own in the environment of the system under test.

`python -m bench.producer bench.peers.huey:Producer` reads requests from its input, one JSON object a
line, and answers each with one. What is timed is timed here, the same way for every system; an adapter
says only how one job is handed in. Nothing but the standard library, since peers run it in their
environments.
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

CHUNK = 1000  # jobs in one bulk call, where the adapter does not say otherwise
CALLERS = 100


def url() -> str:
    """The storage that this run is about."""
    return os.environ["BENCH_URL"]


def address() -> tuple[str, int]:
    """Host and port of the server that this run is about."""
    host, _, port = url().partition("://")[2].partition(":")
    return host, int(port)


def payload(number: int) -> dict[str, Any]:
    """A small job: 50 bytes of JSON."""
    return {"user": 10_000 + number % 90_000, "action": "resize", "size": [640, 480]}


class Adapter:
    """How one system is asked, by methods that are all plain or all coroutines.

    `open`, `close`, `enqueue(job)` and `left()`, the jobs not done yet; where the system offers it also
    `enqueue_many(jobs)` and `call(job)`, which answers with the job's `user`; where the jobs of a drain
    want something special, `fill(jobs, kind)`.
    """

    package = ""
    chunk = CHUNK

    def version(self) -> str:
        return version(self.package)


class Timer:
    """Wall and CPU time of what happens inside."""

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
    """Rests of about `pause` seconds, never in step with anything; fewer of them when time is up."""
    until = time.monotonic() + budget
    for _ in range(count):
        if time.monotonic() >= until:
            return
        yield pause * random.uniform(0.5, 1.5)


class Plain:
    """Requests to an adapter of plain functions."""

    def __init__(self, adapter: Any) -> None:
        self._to = adapter

    def open(self) -> dict[str, Any]:
        self._to.open()
        return {"version": self._to.version(), "loop": None, "can": _offers(self._to)}

    def fill(self, count: int, kind: str = "plain") -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            if hasattr(self._to, "fill"):
                self._to.fill(jobs, kind)
            elif hasattr(self._to, "enqueue_many"):
                for chunk in chunks(jobs, self._to.chunk):
                    self._to.enqueue_many(chunk)
            else:
                for job in jobs:
                    self._to.enqueue(job)
        return timer.answer(count)

    def enqueue(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for job in jobs:
                self._to.enqueue(job)
        return timer.answer(count)

    def many(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for chunk in chunks(jobs, self._to.chunk):
                self._to.enqueue_many(chunk)
        return timer.answer(count)

    def call(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        taken: list[int] = []
        with Timer() as timer:
            for rest in pauses(count, pause, budget):
                time.sleep(rest)
                job = payload(len(taken))
                start = time.perf_counter_ns()
                answer = self._to.call(job)
                taken.append(time.perf_counter_ns() - start)
                _check(answer, job)
        return {**timer.answer(len(taken)), "taken": taken}

    def stamp(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        sent = 0
        for rest in pauses(count, pause, budget):
            time.sleep(rest)
            self._to.enqueue({**payload(sent), "at": time.monotonic_ns()})
            sent += 1
        return {"count": sent}

    def left(self) -> dict[str, Any]:
        return {"left": self._to.left()}

    def close(self) -> dict[str, Any]:
        self._to.close()
        return {}


class Async:
    """Requests to an adapter of coroutines."""

    def __init__(self, adapter: Any, loop: str) -> None:
        self._to = adapter
        self._loop = loop

    async def open(self) -> dict[str, Any]:
        await self._to.open()
        return {"version": self._to.version(), "loop": self._loop, "can": _offers(self._to)}

    async def fill(self, count: int, kind: str = "plain") -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            if hasattr(self._to, "fill"):
                await self._to.fill(jobs, kind)
            elif hasattr(self._to, "enqueue_many"):
                for chunk in chunks(jobs, self._to.chunk):
                    await self._to.enqueue_many(chunk)
            else:
                await self._together(jobs, 20)
        return timer.answer(count)

    async def enqueue(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for job in jobs:
                await self._to.enqueue(job)
        return timer.answer(count)

    async def callers(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            await self._together(jobs, CALLERS)
        return timer.answer(count)

    async def many(self, count: int) -> dict[str, Any]:
        jobs = [payload(i) for i in range(count)]
        with Timer() as timer:
            for chunk in chunks(jobs, self._to.chunk):
                await self._to.enqueue_many(chunk)
        return timer.answer(count)

    async def call(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        taken: list[int] = []
        with Timer() as timer:
            for rest in pauses(count, pause, budget):
                await asyncio.sleep(rest)
                job = payload(len(taken))
                start = time.perf_counter_ns()
                answer = await self._to.call(job)
                taken.append(time.perf_counter_ns() - start)
                _check(answer, job)
        return {**timer.answer(len(taken)), "taken": taken}

    async def stamp(self, count: int, pause: float, budget: float) -> dict[str, Any]:
        sent = 0
        for rest in pauses(count, pause, budget):
            await asyncio.sleep(rest)
            await self._to.enqueue({**payload(sent), "at": time.monotonic_ns()})
            sent += 1
        return {"count": sent}

    async def left(self) -> dict[str, Any]:
        return {"left": await self._to.left()}

    async def close(self) -> dict[str, Any]:
        await self._to.close()
        return {}

    async def _together(self, jobs: list[dict[str, Any]], callers: int) -> None:
        """Every caller awaits its job before it gives the next."""
        todo = iter(jobs)

        async def caller() -> None:
            for job in todo:
                await self._to.enqueue(job)

        await asyncio.gather(*(caller() for _ in range(callers)))


def _offers(adapter: Any) -> list[str]:
    return [name for name in ("enqueue", "enqueue_many", "call", "left") if hasattr(adapter, name)]


def _check(answer: Any, job: dict[str, Any]) -> None:
    if answer != job["user"]:
        raise RuntimeError(f"asked with {job}, answered {answer!r}")


def _serve_plain(adapter: Any, answers: Any) -> None:
    to = Plain(adapter)
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(getattr(to, request.pop("do"))(**request)), file=answers, flush=True)


async def _serve(adapter: Any, answers: Any) -> None:
    loop = asyncio.get_running_loop()
    to = Async(adapter, type(loop).__module__.partition(".")[0])
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        request = json.loads(line)
        work: Awaitable[dict[str, Any]] = getattr(to, request.pop("do"))(**request)
        print(json.dumps(await work), file=answers, flush=True)


def _loop_factory() -> Any:
    try:
        return importlib.import_module("uvloop").new_event_loop
    except ImportError:
        return None


def main(path: str) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for an answer
    module, _, name = path.partition(":")
    adapter = getattr(importlib.import_module(module), name)()
    if inspect.iscoroutinefunction(adapter.enqueue):
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(adapter, answers))
    else:
        _serve_plain(adapter, answers)


if __name__ == "__main__":
    main(sys.argv[1])
