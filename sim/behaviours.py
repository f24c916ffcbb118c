"""Behaviours of the handlers: drawn for each attempt of a job from the seed, and reported to the ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Protocol

from chaos.behaviours import obey_cancel
from penstock import Failure, Job, Outcome, PermanentError, Retry
from penstock.errors import StorageError, StorageUnavailable
from penstock.testing.simulation.faults import draws
from penstock.testing.simulation.loop import Node

__all__ = ["MAX_RESULT", "STUBBORN", "Behaviours", "RunObserver", "is_child"]

#: The longest result (bytes).
MAX_RESULT = 20_000

#: What a run does, and how often. `refuse` ignores its cancellation, `block` never awaits for some seconds,
#: `stop` stops its whole process for longer than a lease, `refused` returns a value whose settle the storage refuses,
#: `odd` raises what is hard to record, `large` returns too much, `lookup` raises what some queues call permanent.
SHARES: dict[str, float] = {
    "ok": 0.18, "slow": 0.12, "long": 0.12, "raise": 0.12, "retry": 0.06, "permanent": 0.03, "hang": 0.04,
    "progress": 0.05, "then": 0.09, "refuse": 0.03, "block": 0.03, "obey": 0.04, "odd": 0.03, "cancel itself": 0.02,
    "large": 0.02, "lookup": 0.02, "refused": 0.02,
}  # fmt: skip

#: The queues in which a run may hold up the others: `hold` pauses its group, or its queue, until its retry.
HELD = frozenset({"llm/ask", "llm/sum", "tenant", "strict"})

#: Behaviours of runs that do not end when they are cancelled.
STUBBORN = frozenset({"refuse", "block", "stop"})

#: The longest `stop` (leases).
LEASES = 2.5

#: A run of a child process that ignores its cancellation lasts for this long (seconds) and more: it is killed before.
KILLED_BEFORE = 60.0


def is_child(node: Node) -> bool:
    """Return whether a node is a child process of a worker."""
    return node.name.count(".") == 2


class RunObserver(Protocol):
    """The ledger, as handlers report to it."""

    def began(self, node: Node, jobs: list[Job], behaviour: str) -> int: ...

    def ended(self, number: int, by_itself: bool = False) -> None: ...


class Behaviours:
    """Runs jobs as the seed has it. After `calm` all of them succeed soon."""

    def __init__(
        self, seed: int, observer: RunObserver, may_follow: Callable[[], bool] = lambda: True, lease: float = 5.0
    ) -> None:
        self._seed = seed
        self._lease = lease
        self._observer = observer
        self._may_follow = may_follow
        self.calm = False

    def choose(self, job: Job) -> tuple[str, float]:
        """Return the behaviour of an attempt, and a number from 0 to 1 for its details."""
        left, size, *_ = draws(self._seed, f"run/{job.queue}/{job.id}/{job.attempt}/{job.retries}/{job.stalls}")
        if self.calm:
            return ("refused", size) if left < 0.02 else ("slow", 0.1 * size)
        if job.queue in ("burst", "heavy") and size < 0.7:
            return "ok", size
        if job.queue == "moved" and left > 0.7:
            return "raise", size
        if job.queue == "long" and left < 0.8:
            return "long", 0.4 + size
        if job.queue in HELD and left > 0.88:
            return "hold", size
        if job.queue == "ticks" and size < 0.5:
            return "ok", size
        for behaviour, share in SHARES.items():
            if left < share:
                return behaviour, size
            left -= share
        return "ok", size

    def _named(self, payload: Any, job: Job) -> tuple[str, float] | None:
        """Return the behaviour that the payload of a job names for its first attempt."""
        if self.calm or job.attempt > 1 or not (isinstance(payload, dict) and "do" in payload):
            return None
        return payload["do"], payload["size"]

    async def run(self, node: Node, payload: Any, job: Job) -> Any:
        """Behave as drawn, in a coroutine."""
        behaviour, size = self._named(payload, job) or self.choose(job)
        number = self._observer.began(node, [job], behaviour)
        by_itself = True
        try:
            return await self._behave(node, behaviour, size, job)
        except asyncio.CancelledError:
            by_itself = behaviour == "cancel itself"
            raise
        finally:
            self._observer.ended(number, by_itself)

    async def run_batch(self, node: Node, payloads: list[Any], jobs: list[Job]) -> Any:
        """Behave as drawn for the first job of a batch; half of the batches return an outcome for each job."""
        behaviour, size = self.choose(jobs[0])
        number = self._observer.began(node, jobs, behaviour)
        try:
            await self._behave(node, behaviour, size, jobs[0])
            if size < 0.5:
                return None
            return [outcome_of(self.choose(job)[1], job.id) for job in jobs]
        finally:
            self._observer.ended(number)

    def run_plain(self, node: Node, payload: Any, job: Job) -> Any:
        """Behave as drawn, in a plain function: it sleeps instead of awaiting."""
        behaviour, size = self.choose(job)
        number = self._observer.began(node, [job], f"plain {behaviour}")
        seconds = {"slow": 2 * size, "long": 4 * size, "hang": 9.0, "refuse": 12.0, "block": 6 * size}.get(
            behaviour, 0.0
        )
        time.sleep(seconds)
        node.call_in(seconds, self._observer.ended, number)
        raise_if(behaviour, size)
        return job.id

    async def run_failure(self, node: Node, failure: Failure, job: Job) -> None:
        """Take a failure: at times the first attempt raises."""
        _, size = self.choose(job)
        number = self._observer.began(node, [job], "failure")
        try:
            await asyncio.sleep(size)
            if size > 0.7 and job.attempt == 1 and not self.calm:
                raise RuntimeError("the first attempt of a fail job")
        finally:
            self._observer.ended(number)

    async def _behave(self, node: Node, behaviour: str, size: float, job: Job) -> Any:
        match behaviour:
            case "slow":
                await asyncio.sleep(3 * size)
            case "long":
                await asyncio.sleep(25 * size)
            case "hang":
                await asyncio.sleep(3600)
            case "progress":
                for number in range(round(4 * size)):
                    job.log(f"line {number}", "info" if number else "warning")
                await job.progress(size, "half" if size < 0.5 else "half " * 500)
                await asyncio.sleep(size)
            case "then":
                job.log("the end " * round(2000 * size))
                if self._may_follow() and job.queue in ("mail", "mail/after"):
                    for number in range(1 + round(size)):
                        job.then("mail/after", {"of": job.id, "n": number}, priority=number)
            case "refuse":
                await refuse_cancel(30 * size + (KILLED_BEFORE if is_child(node) else 0.0))
            case "block":
                node.freeze(6 * size, blocked=True)
                await asyncio.sleep(0)
            case "stop":
                node.freeze(LEASES * self._lease * (0.5 + 0.5 * size))
                await asyncio.sleep(0)
            case "obey":
                await obey_cancel(job, 4 * size)
            case "cancel itself":
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(1)
            case "refused":
                return f"refused {int(3 * size)}"
            case "large":
                return "x" * (MAX_RESULT + 1)
            case _:
                raise_if(behaviour, size)
        return job.id


def raise_if(behaviour: str, size: float) -> None:
    """Raise the exception of a behaviour, if it has one."""
    if behaviour == "raise":
        raise RuntimeError("drawn")
    if behaviour == "permanent":
        raise PermanentError("drawn")
    if behaviour == "retry":
        raise Retry(delay=4 * size, count=size < 0.5)
    if behaviour == "hold":
        raise Retry(delay=4 * size, pause="group" if size < 0.8 else "queue")
    if behaviour == "lookup":
        raise KeyError("drawn")
    if behaviour == "odd":
        raise (RuntimeError("\ud800"), Unspeakable("drawn"), BaseException("drawn"))[int(3 * size)]


def error_of(result: bytes) -> Exception:
    """Return the error with which the storage answers a settle with a refused result."""
    match result[-2:-1]:
        case b"0":
            return ValueError("this result is refused")
        case b"1":
            return StorageError("this result is refused")
        case _:
            error = StorageUnavailable("the connection breaks under this result")
            error.uncertain = True
            return error


class Unspeakable(Exception):
    """An exception that raises when it is to be recorded."""

    def __str__(self) -> str:
        raise BaseException("no text")


def outcome_of(size: float, value: Any) -> Outcome:
    """Return the outcome of one job of a batch."""
    if size < 0.6:
        return Outcome.complete(value)
    return Outcome.retry(delay=size) if size < 0.8 else Outcome.fail("drawn")


async def refuse_cancel(seconds: float) -> None:
    """Sleep on after every cancellation."""
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    while (left := until - loop.time()) > 0:
        try:
            await asyncio.sleep(left)
        except asyncio.CancelledError:
            continue
