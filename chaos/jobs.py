"""The app of the chaos run: a queue for each kind of job, and handlers that record their runs.

`penstock worker chaos.jobs:app` imports it. `CHAOS_LOG` is the folder of the history, `CHAOS_ROLE` the name of this
process in it, `CHAOS_CLOCK` the offset of its clock in seconds, `CHAOS_CLOCK_FILE` a file with the offset of all clocks
in milliseconds, and `CHAOS_DURABILITY` the app's `durability` option.
With `CHAOS_VERSION` it has the limited queues, and that version of the limits and of `CHAOS_SCHEDULES` schedules.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from chaos.behaviours import run_behaviour, run_behaviour_in_thread
from chaos.limited_queues import (
    ALL_SETTINGS,
    FAMILY,
    LIMITED_BATCHED,
    LIMITED_SETTINGS,
    declared_limits,
    declared_schedules,
)
from chaos.log import Log
from chaos.queues import BATCHED, FAIL_HANDLER_OPTIONS, NAMESPACE, SETTINGS, THREADED, WITH_FAIL_HANDLER
from chaos.recorder import record
from chaos.shared_number import SharedNumber
from penstock import Failure, Job, Outcome, Penstock
from penstock.model.source import source
from penstock.worker import declarations
from penstock.worker import declared_schedules as schedule_declarations

__all__ = ["LimitedCode", "app", "build", "log"]

Payload = dict[str, Any]

_runs = itertools.count(1)


class LimitedCode(NamedTuple):
    """The code of a run of limits: its version, 0 or 1, and the number of schedules in both versions together."""

    version: int
    schedules: int


def build(
    url: str, log: Log, plant_bug: Callable[[Any], None] | None = None, limited: LimitedCode | None = None
) -> Penstock:
    """Build the app on a storage and record what its workers do; `plant_bug` changes the storage first."""
    durability = os.environ.get("CHAOS_DURABILITY")
    more: dict[str, Any] = {"durability": durability} if durability else {}
    app = Penstock(url, namespace=NAMESPACE, **more)
    if plant_bug is not None:
        for storage in dict.fromkeys([app.storage, app.producer_storage]):
            plant_bug(storage)
    record(app, log)
    handlers = Handlers(log)
    if limited is not None:
        listen_limited(app, handlers, limited)
        return app
    for queue, settings in SETTINGS.items():
        failing: dict[str, Any] = {}
        if queue in WITH_FAIL_HANDLER:
            failing = {"on_failure": handlers.fail_handler(), "failure_options": FAIL_HANDLER_OPTIONS}
        app.listen(queue, handlers.for_queue(queue), **settings, **failing)
    return app


def listen_limited(app: Penstock, handlers: Handlers, code: LimitedCode) -> None:
    """Register the handlers of the limited queues with the limits and schedules of a version of the code."""
    limits = declared_limits(code.version)
    schedules = list(declared_schedules(code.version, code.schedules))
    for queue, settings in LIMITED_SETTINGS.items():
        app.listen(
            queue, handlers.for_queue(queue), **settings, limit=limits.queues.get(queue),
            group_limit=limits.groups.get(queue), schedule=[each for name, each in schedules if name == queue] or None,
        )  # fmt: skip
    app.limit(FAMILY, limits.family)


class Handlers:
    """Factory of the handlers of all queues, which differ only in how a worker calls them."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def for_queue(self, queue: str) -> Callable[..., Any]:
        if queue in (*BATCHED, *LIMITED_BATCHED):
            return self._batch(queue)
        return self._threaded(queue) if queue in THREADED else self._async(queue)

    @contextmanager
    def _recorded(self, queue: str, payloads: Sequence[Payload], jobs: Sequence[Job], **more: Any) -> Generator[None]:
        """Record the start of a run, its jobs (id, token, attempt, number, group) and its end."""
        number, how = next(_runs), "ok"
        described = [[j.id, j.fence, j.attempt, p.get("n"), j.group] for p, j in zip(payloads, jobs, strict=True)]
        units = ALL_SETTINGS.get(queue, FAIL_HANDLER_OPTIONS)["size"]
        self._log.write("run_start", r=number, q=queue, u=units, jobs=described, **more)
        try:
            yield
        except BaseException as error:
            how = type(error).__name__
            raise
        finally:
            self._log.write("run_end", r=number, how=how)

    def _async(self, queue: str) -> Callable[..., Any]:
        async def handler(payload: Payload, job: Job) -> dict[str, Any]:
            with self._recorded(queue, [payload], [job]):
                await run_behaviour(payload, job)
            return value_of(payload, job)

        return handler

    def _threaded(self, queue: str) -> Callable[..., Any]:
        def handler(payload: Payload, job: Job) -> dict[str, Any]:
            with self._recorded(queue, [payload], [job]):
                run_behaviour_in_thread(payload, job)
            return value_of(payload, job)

        return handler

    def _batch(self, queue: str) -> Callable[..., Any]:
        async def handler(payloads: list[Payload], jobs: list[Job]) -> list[Any]:
            with self._recorded(queue, payloads, jobs):
                return [await in_batch(payload, job) for payload, job in zip(payloads, jobs, strict=True)]

        return handler

    def fail_handler(self) -> Callable[..., Any]:
        def handler(failure: Failure, job: Job) -> None:
            origin = failure.job
            of = [origin.queue, origin.id, origin.fence, failure.error.kind.value]
            with self._recorded(job.queue, [{}], [job], of=of):
                if job.retries == 0 and sum(origin.id.encode()) % 5 == 0:
                    raise RuntimeError("a fail handler may fail, too")

        return handler


async def in_batch(payload: Payload, job: Job) -> Any:
    """Run one job of a batch: "raise" fails this job alone, "fail_batch" fails the whole batch."""
    again = job.retries < payload.get("times", 0)
    if payload["behaviour"] == "fail_batch" and again:
        raise RuntimeError(f"{job.id} fails its batch")
    if payload["behaviour"] == "raise" and again:
        return Outcome.fail(f"{job.id} alone")
    if payload["behaviour"] not in ("raise", "fail_batch"):
        await run_behaviour(payload, job)
    return value_of(payload, job)


def value_of(payload: Payload, job: Job) -> dict[str, Any]:
    """Return a result with the token of its run."""
    return {"n": payload["n"], "tok": job.fence}


true_time = time.time
if clock_offset := float(os.environ.get("CHAOS_CLOCK") or 0):
    time.time = source.wall = lambda: true_time() + clock_offset
elif clock_file := os.environ.get("CHAOS_CLOCK_FILE"):
    clock = SharedNumber(clock_file)
    time.time = source.wall = lambda: true_time() + clock.value / 1000

if folder := os.environ.get("CHAOS_LOG"):
    logging.getLogger("penstock.worker").setLevel(logging.WARNING)  # INFO has a line for each run
    log = Log(folder, os.environ["CHAOS_ROLE"])
    limited_code: LimitedCode | None = None
    if code_version := os.environ.get("CHAOS_VERSION"):
        limited_code = LimitedCode(int(code_version), int(os.environ["CHAOS_SCHEDULES"]))
        # A run is shorter than the usual times after which workers look at declarations and retire schedules.
        declarations.LOOK, schedule_declarations.RETIRE_AFTER = 3.0, 6.0
    app = build(os.environ["PENSTOCK_URL"], log, limited=limited_code)
