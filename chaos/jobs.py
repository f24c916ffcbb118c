"""The app of the chaos run: a queue for each kind of job, and handlers that write down what they do.

It is what `penstock worker chaos.jobs:app` imports. `CHAOS_LOG` is the folder of the history, `CHAOS_ROLE` the name
of this process in it, and `CHAOS_CLOCK` says by how many seconds its clock is wrong.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from chaos.log import Log
from chaos.moods import act, act_in_thread
from chaos.queues import FAILING, SETTINGS, WITH_FAIL_HANDLER
from chaos.recorder import record
from penstock import Failure, Job, Outcome, Penstock

__all__ = ["app"]

NAMESPACE = "chaos"

if wrong := float(os.environ.get("CHAOS_CLOCK") or 0):
    right = time.time
    time.time = lambda: right() + wrong

log = Log(os.environ.get("CHAOS_LOG", "."), os.environ.get("CHAOS_ROLE", "nobody"))
app = Penstock(os.environ.get("PENSTOCK_URL", "memory:"), namespace=NAMESPACE)
if "CHAOS_LOG" in os.environ:
    record(app, log)

logging.getLogger("penstock.worker").setLevel(logging.WARNING)  # a line for each run would be a great many

Payload = dict[str, Any]
_runs = itertools.count(1)


@contextmanager
def written(queue: str, units: int, payloads: Sequence[Payload], jobs: Sequence[Job], **more: Any) -> Iterator[None]:
    """A run as the history knows it: its jobs (id, token, attempt, number, group), when it began and how it ended."""
    number, how = next(_runs), "ok"
    told = [[j.id, j.fence, j.attempt, p.get("n"), j.group] for p, j in zip(payloads, jobs, strict=True)]
    log.write("start", r=number, q=queue, u=units, jobs=told, **more)
    try:
        yield
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        log.write("end", r=number, how=how)


def value_of(payload: Payload, job: Job) -> dict[str, Any]:
    """A result that tells which run it is from."""
    return {"n": payload["n"], "tok": job.fence}


def buried(failure: Failure, job: Job) -> None:
    """The fail handler of every queue that has one."""
    origin = failure.job
    of = [origin.queue, origin.id, origin.fence, failure.error.kind.value]
    with written(job.queue, 2, [{}], [job], of=of):
        if job.retries == 0 and sum(origin.id.encode()) % 5 == 0:
            raise RuntimeError("a fail handler may fail, too")


def units_of(queue: str) -> int:
    return SETTINGS[queue].get("size", 0)


def add_async(queue: str) -> None:
    async def handler(payload: Payload, job: Job) -> dict[str, Any]:
        with written(queue, units_of(queue), [payload], [job]):
            await act(payload, job)
        return value_of(payload, job)

    _listen(queue, handler)


def add_sync(queue: str) -> None:
    def handler(payload: Payload, job: Job) -> dict[str, Any]:
        with written(queue, units_of(queue), [payload], [job]):
            act_in_thread(payload, job)
        return value_of(payload, job)

    _listen(queue, handler)


def add_batch(queue: str) -> None:
    async def handler(payloads: list[Payload], jobs: list[Job]) -> list[Any]:
        with written(queue, units_of(queue), payloads, jobs):
            answers: list[Any] = []
            for payload, job in zip(payloads, jobs, strict=True):
                if payload["mood"] == "spoil" and job.retries < payload["times"]:
                    raise RuntimeError(f"{job.id} spoils its batch")
                if payload["mood"] == "raise" and job.retries < payload["times"]:
                    answers.append(Outcome.fail(f"{job.id} alone"))
                    continue
                await act({**payload, "mood": "ok"} if payload["mood"] in ("raise", "spoil") else payload, job)
                answers.append(value_of(payload, job))
            return answers

    _listen(queue, handler)


def _listen(queue: str, handler: Any) -> None:
    more: dict[str, Any] = {"on_failure": buried, "failure_options": FAILING} if queue in WITH_FAIL_HANDLER else {}
    app.listen(queue, handler, **SETTINGS[queue], **more)


for _queue in ("plain", "plain/after", "brief", "lane", "single", "call", "wanted", "later", "gate", "heavy"):
    add_async(_queue)
for _queue in ("sync", "wantedsync", "heavysync"):
    add_sync(_queue)
for _queue in ("bunch", "lanes"):
    add_batch(_queue)
