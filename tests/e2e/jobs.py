"""The app of the end-to-end tests. Every payload names the log file to write to."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from typing import Any

from penstock import Failure, Job, Penstock

app = Penstock(namespace=os.environ.get("PENSTOCK_NAMESPACE", "penstock"))


def create_app() -> Penstock:
    """Return the app; for `jobs:create_app()`."""
    return app


def note(payload: dict[str, Any], *words: object) -> None:
    """Append one line to the log, with the process id."""
    with open(payload["log"], "a", encoding="utf-8") as file:
        file.write(" ".join(map(str, (*words, os.getpid()))) + "\n")


@app.handler("quick", min_backoff=0.05)
async def quick(payload: dict[str, Any], job: Job) -> int:
    note(payload, "quick", job.id, job.attempt)
    return os.getpid()


@app.handler("slow", min_backoff=0.05, timeout=60)
async def slow(payload: dict[str, Any], job: Job) -> str:
    """Sleep as long as the payload demands; log start, end and cancellation."""
    note(payload, "begin", job.id, job.attempt)
    try:
        await asyncio.sleep(payload.get("seconds", 60))
    except asyncio.CancelledError:
        note(payload, "cancelled", job.id, job.attempt)
        raise
    note(payload, "end", job.id, job.attempt)
    return "slept"


@app.handler("single", min_backoff=0.05, timeout=60, concurrency=1)
async def single(payload: dict[str, Any], job: Job) -> str:
    """Run as `slow`, one job at a time in all processes."""
    return await slow(payload, job)


@app.handler("thread", min_backoff=0.05, timeout=60)
def thread(payload: dict[str, Any], job: Job) -> str:
    """Sleep in a thread; at the second attempt for `again` seconds."""
    note(payload, "begin", job.id, job.attempt)
    time.sleep(payload["again"] if job.attempt > 1 and "again" in payload else payload.get("seconds", 60))
    note(payload, "end", job.id, job.attempt)
    return "slept"


@app.handler("greedy", min_backoff=0.05, timeout=60)
async def greedy(payload: dict[str, Any], job: Job) -> str:
    """Hold the interpreter's lock, so that no thread of the process can run.

    It waits first, so as not to block a transaction of its own SQLite writer, and with it all other processes.
    """
    await asyncio.sleep(0.3)
    note(payload, "begin", job.id, job.attempt)
    ctypes.PyDLL(None).usleep(int(payload.get("seconds", 60) * 1_000_000))
    note(payload, "end", job.id, job.attempt)
    return "held"


@app.handler("stubborn", min_backoff=0.05, timeout=60)
async def stubborn(payload: dict[str, Any], job: Job) -> str:
    """Ignore cancellation."""
    note(payload, "begin", job.id, job.attempt)
    until = time.monotonic() + payload.get("seconds", 60)
    while time.monotonic() < until:
        try:
            await asyncio.sleep(until - time.monotonic())
        except asyncio.CancelledError:
            note(payload, "ignored", job.id, job.attempt)
    note(payload, "end", job.id, job.attempt)
    return "stubborn"


def gave_up(failure: Failure) -> None:
    note(failure.payload, "gave_up", failure.job.id, failure.error.type, failure.error.kind.value)


@app.handler("poison", on_failure=gave_up, min_backoff=0.05, max_timeouts=1)
async def poison(payload: dict[str, Any], job: Job) -> None:
    """Kill the process in the way that the payload names."""
    note(payload, "begin", job.id, job.attempt)
    await asyncio.sleep(payload.get("seconds", 0.05))
    if payload["how"] == "exit":
        os._exit(3)
    elif payload["how"] == "segfault":
        ctypes.string_at(0)
    elif payload["how"] == "once" and job.stalls:
        return
    elif payload["how"] == "hang":
        time.sleep(60)  # noqa: ASYNC251
    os.kill(os.getpid(), signal.SIGKILL)


@app.handler("batches", on_failure=gave_up, batch_size=4, max_stalls=2)
async def batches(payloads: list[dict[str, Any]], jobs: list[Job]) -> None:
    """Kill the process if one of the payloads demands it."""
    note(payloads[0], "batch", *(job.id for job in jobs))
    if any("poison" in payload for payload in payloads):
        os.kill(os.getpid(), signal.SIGKILL)


@app.handler("hungry")
async def hungry(payload: dict[str, Any], job: Job) -> None:
    """Keep memory."""
    note(payload, "quick", job.id, job.attempt)
    KEPT.append(bytearray(os.urandom(1)) * payload["bytes"])


@app.handler("asks", timeout=60)
async def asks(payload: dict[str, Any], job: Job) -> str:
    """Run until a cancel is requested."""
    note(payload, "begin", job.id, job.attempt)
    await job.cancelled
    note(payload, "asked", job.id, job.attempt)
    return "asked"


@app.handler("freezes", min_backoff=0.05)
async def freezes(payload: dict[str, Any], job: Job) -> None:
    """Stop the own process in the first run, if the payload demands it; never suspend.

    It sleeps first, so as not to be stopped inside of a transaction of its own SQLite writer.
    """
    note(payload, "begin", job.id, job.attempt)
    if "freeze" in payload and job.attempt == 1:
        time.sleep(0.3)  # noqa: ASYNC251
        os.kill(os.getpid(), signal.SIGSTOP)
    note(payload, "end", job.id, job.attempt)


class OwnBaseError(BaseException):
    """An exception that `except Exception` does not catch."""


def throw(how: str) -> None:
    """Raise an exception of this name."""
    known = (OwnBaseError, GeneratorExit, KeyboardInterrupt, asyncio.CancelledError)
    raise {each.__name__: each for each in known}[how]("thrown")


@app.handler("raises", timeout=None, max_retries=0)
async def raises(payload: dict[str, Any], job: Job) -> None:
    note(payload, "begin", job.id, job.attempt)
    throw(payload["how"])


@app.handler("raises-plain", timeout=None, max_retries=0)
def raises_plain(payload: dict[str, Any], job: Job) -> None:
    note(payload, "begin", job.id, job.attempt)
    throw(payload["how"])


@app.handler("raises-batch", timeout=None, max_retries=0, batch_size=2)
async def raises_batch(payloads: list[dict[str, Any]], jobs: list[Job]) -> None:
    note(payloads[0], "begin", jobs[0].id, jobs[0].attempt)
    throw(payloads[0]["how"])


KEPT: list[bytearray] = []


@app.on("lease_lost")
def lost(event: Any) -> None:
    if path := os.environ.get("PENSTOCK_TEST_LOG"):
        note({"log": path}, "lease_lost", event.id, event.attempt)
