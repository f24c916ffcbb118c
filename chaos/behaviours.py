"""Behaviours of the handlers of the chaos run, chosen by the field `behaviour` of a job's payload."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import Any

from penstock import Job, PermanentError, Retry

__all__ = ["follow_up_queue", "run_behaviour", "run_behaviour_in_thread"]

FOREVER = 3600.0

#: Memory that leaking handlers never free.
leaked_memory: list[bytearray] = []

Payload = dict[str, Any]


async def run_behaviour(payload: Payload, job: Job) -> None:
    """Behave as the payload asks, in a coroutine."""
    times, seconds = payload.get("times", 0), payload.get("s", 0.0)
    match payload["behaviour"]:
        case "sleep":
            await asyncio.sleep(seconds)
        case "progress":
            await job.progress(0.5, "half")
            await asyncio.sleep(seconds)
        case "follow_up":
            for _ in range(times):
                job.then(follow_up_queue(job.queue), {"n": 0, "behaviour": "ok", "of": job.id})
            await asyncio.sleep(seconds)
        case "hang" if job.timeouts < times:
            await asyncio.sleep(FOREVER)
        case "refuse_cancel" if job.timeouts < times:
            await refuse_cancel()
        case "obey_cancel":
            await obey_cancel(job, seconds)
        case "ignore_cancel":
            await asyncio.sleep(seconds)
        case _:
            run_without_waiting(payload, job)


def run_behaviour_in_thread(payload: Payload, job: Job) -> None:
    """Behave as the payload asks, in a thread."""
    times, seconds = payload.get("times", 0), payload.get("s", 0.0)
    match payload["behaviour"]:
        case "sleep" | "ignore_cancel":
            time.sleep(seconds)
        case "hang" if job.timeouts < times:
            time.sleep(FOREVER)
        case "obey_cancel":
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                if job.cancelled:
                    raise RuntimeError("cancel requested")
                time.sleep(0.01)
        case _:
            run_without_waiting(payload, job)


def run_without_waiting(payload: Payload, job: Job) -> None:
    """Run a behaviour that never sleeps; the same code serves coroutines and threads."""
    times = payload.get("times", 0)
    match payload["behaviour"]:
        case "raise" if job.retries < times:
            raise RuntimeError(f"attempt {job.attempt} of {job.id}")
        case "permanent":
            raise PermanentError("never again")
        case "retry" if job.retries < times:
            raise Retry(delay=payload.get("s", 0.0))
        case "pause_group" if job.retries < times:
            raise Retry(delay=payload.get("s", 0.0), pause="group")
        case "spin" if job.timeouts < times:
            while True:  # never yields to the event loop, and keeps the GIL busy
                pass
        case "leak":
            leaked_memory.append(bytearray(os.urandom(1)) * payload["bytes"])
        case "exit_process" if job.stalls < times:
            os._exit(3)
        case "kill_process" if job.stalls < times:
            os.kill(os.getpid(), signal.SIGKILL)
        case _:
            pass


async def refuse_cancel() -> None:
    """Sleep on after every `CancelledError`."""
    until = time.monotonic() + FOREVER
    while time.monotonic() < until:
        try:
            await asyncio.sleep(FOREVER)
        except asyncio.CancelledError:
            continue


async def obey_cancel(job: Job, seconds: float) -> None:
    """Raise when the job's cancel is requested; return after `seconds` otherwise."""
    try:
        async with asyncio.timeout(seconds):
            await job.cancelled
    except TimeoutError:
        return
    raise RuntimeError("cancel requested")


def follow_up_queue(queue: str) -> str:
    """Return the queue for a queue's follow-up jobs, which is in the same family."""
    return f"{queue}/after"
