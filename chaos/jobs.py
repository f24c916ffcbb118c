"""The app of the chaos run: a queue for each kind of job, and handlers that write down what they do.

It is what `penstock worker chaos.jobs:app` imports. `CHAOS_LOG` is the folder of the history, `CHAOS_ROLE` the name
of this process in it, `CHAOS_CLOCK` says by how many seconds its clock is wrong, and `CHAOS_DURABILITY` what the app
asks of its storage.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any

from chaos.log import Log
from chaos.moods import act, act_in_thread
from chaos.queues import BATCHED, FAILING, NAMESPACE, SETTINGS, THREADED, WITH_FAIL_HANDLER
from chaos.recorder import record
from penstock import Failure, Job, Outcome, Penstock

__all__ = ["app", "build", "log"]

Payload = dict[str, Any]

_runs = itertools.count(1)


def build(url: str, log: Log, plant: Callable[[Any], None] | None = None) -> Penstock:
    """The app on a storage; what its workers do is written down. `plant` puts a bug into the storage first."""
    durability = os.environ.get("CHAOS_DURABILITY")
    more: dict[str, Any] = {"durability": durability} if durability else {}
    app = Penstock(url, namespace=NAMESPACE, **more)
    if plant is not None:
        plant(app.storage)
    record(app, log)
    handlers = Handlers(log)
    for queue, settings in SETTINGS.items():
        failing: dict[str, Any] = {}
        if queue in WITH_FAIL_HANDLER:
            failing = {"on_failure": handlers.buried(), "failure_options": FAILING}
        app.listen(queue, handlers.of(queue), **settings, **failing)
    return app


class Handlers:
    """Makes the handlers of all queues; they differ in how they are called."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def of(self, queue: str) -> Callable[..., Any]:
        if queue in BATCHED:
            return self._batch(queue)
        return self._threaded(queue) if queue in THREADED else self._async(queue)

    @contextmanager
    def _written(self, queue: str, payloads: Sequence[Payload], jobs: Sequence[Job], **more: Any) -> Generator[None]:
        """A run as the history knows it: its jobs (id, token, attempt, number, group), its beginning and its end."""
        number, how = next(_runs), "ok"
        told = [[j.id, j.fence, j.attempt, p.get("n"), j.group] for p, j in zip(payloads, jobs, strict=True)]
        units = SETTINGS.get(queue, FAILING)["size"]
        self._log.write("start", r=number, q=queue, u=units, jobs=told, **more)
        try:
            yield
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self._log.write("end", r=number, how=how)

    def _async(self, queue: str) -> Callable[..., Any]:
        async def handler(payload: Payload, job: Job) -> dict[str, Any]:
            with self._written(queue, [payload], [job]):
                await act(payload, job)
            return value_of(payload, job)

        return handler

    def _threaded(self, queue: str) -> Callable[..., Any]:
        def handler(payload: Payload, job: Job) -> dict[str, Any]:
            with self._written(queue, [payload], [job]):
                act_in_thread(payload, job)
            return value_of(payload, job)

        return handler

    def _batch(self, queue: str) -> Callable[..., Any]:
        async def handler(payloads: list[Payload], jobs: list[Job]) -> list[Any]:
            with self._written(queue, payloads, jobs):
                return [await in_batch(payload, job) for payload, job in zip(payloads, jobs, strict=True)]

        return handler

    def buried(self) -> Callable[..., Any]:
        def buried(failure: Failure, job: Job) -> None:
            origin = failure.job
            of = [origin.queue, origin.id, origin.fence, failure.error.kind.value]
            with self._written(job.queue, [{}], [job], of=of):
                if job.retries == 0 and sum(origin.id.encode()) % 5 == 0:
                    raise RuntimeError("a fail handler may fail, too")

        return buried


async def in_batch(payload: Payload, job: Job) -> Any:
    """One job of a batch: it may fail by itself, or take its neighbours with it."""
    again = job.retries < payload.get("times", 0)
    if payload["mood"] == "spoil" and again:
        raise RuntimeError(f"{job.id} spoils its batch")
    if payload["mood"] == "raise" and again:
        return Outcome.fail(f"{job.id} alone")
    if payload["mood"] not in ("raise", "spoil"):
        await act(payload, job)
    return value_of(payload, job)


def value_of(payload: Payload, job: Job) -> dict[str, Any]:
    """A result that tells which run it is from."""
    return {"n": payload["n"], "tok": job.fence}


if wrong := float(os.environ.get("CHAOS_CLOCK") or 0):
    right = time.time
    time.time = lambda: right() + wrong

if folder := os.environ.get("CHAOS_LOG"):
    logging.getLogger("penstock.worker").setLevel(logging.WARNING)  # a line for each run would be a great many
    log = Log(folder, os.environ["CHAOS_ROLE"])
    app = build(os.environ["PENSTOCK_URL"], log)
