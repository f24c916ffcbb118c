"""What the handlers of the chaos run do: their payload's mood says it."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from penstock import Job, PermanentError, Retry

__all__ = ["act", "act_in_thread", "after_of"]

FOREVER = 3600.0

#: What leaking handlers keep.
kept: list[bytearray] = []

Payload = dict[str, Any]


async def act(payload: Payload, job: Job) -> None:
    """One run of an async handler."""
    times, seconds = payload.get("times", 0), payload.get("s", 0.0)
    match payload["mood"]:
        case "sleep":
            await asyncio.sleep(seconds)
        case "progress":
            await job.progress(0.5, "half")
            await asyncio.sleep(seconds)
        case "then":
            for _ in range(times):
                job.then(after_of(job.queue), {"n": 0, "mood": "ok", "of": job.id})
            await asyncio.sleep(seconds)
        case "hang" if job.timeouts < times:
            await asyncio.sleep(FOREVER)
        case "stubborn" if job.timeouts < times:
            await stubborn()
        case "obey":
            await obey(job, seconds)
        case "deaf":
            await asyncio.sleep(seconds)
        case _:
            suddenly(payload, job)


def act_in_thread(payload: Payload, job: Job) -> None:
    """One run of a sync handler."""
    times, seconds = payload.get("times", 0), payload.get("s", 0.0)
    match payload["mood"]:
        case "sleep" | "deaf":
            time.sleep(seconds)
        case "hang" if job.timeouts < times:
            time.sleep(FOREVER)
        case "obey":
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if job.cancelled:
                    raise RuntimeError("asked to end")
                time.sleep(0.01)
        case _:
            suddenly(payload, job)


def suddenly(payload: Payload, job: Job) -> None:
    """Moods that need no waiting, in a coroutine or in a thread."""
    times = payload.get("times", 0)
    match payload["mood"]:
        case "raise" if job.retries < times:
            raise RuntimeError(f"attempt {job.attempt} of {job.id}")
        case "permanent":
            raise PermanentError("never again")
        case "retry" if job.retries < times:
            raise Retry(delay=payload.get("s", 0.0))
        case "spin" if job.timeouts < times:
            while True:  # holds the interpreter as tightly as Python code can
                pass
        case "leak":
            kept.append(bytearray(os.urandom(1)) * payload["bytes"])
        case "exit" if job.stalls < times:
            os._exit(3)
        case "die" if job.stalls < times:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


async def stubborn() -> None:
    """Does not let itself be cancelled."""
    until = time.monotonic() + FOREVER
    while time.monotonic() < until:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            continue


async def obey(job: Job, seconds: float) -> None:
    """Ends when somebody asks it to, or after a while."""
    try:
        async with asyncio.timeout(seconds):
            await job.cancelled
    except TimeoutError:
        return
    raise RuntimeError("asked to end")


def after_of(queue: str) -> str:
    """Where the follow-ups of a queue go: into its family."""
    return f"{queue}/after"
