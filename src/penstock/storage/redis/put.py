"""Puts: jobs of concurrent callers are gathered into few calls of `put.lua`."""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
import time
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.errors import QueueFull
from penstock.model.durability import DurabilityReport
from penstock.model.ids import new_token
from penstock.model.job import NewJob, State
from penstock.storage.base import MAX_BATCH, MAX_BYTES, Put, PutStatus
from penstock.storage.redis.cluster_families import ClusterFamilies
from penstock.storage.redis.confirm import Confirmer
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.encoding import encode_bounded_jobs, encode_jobs
from penstock.storage.redis.fast_path import encode_plain_jobs
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.pipeline import NoAnswer
from penstock.storage.redis.schema import Schema
from penstock.storage.redis.script_calls import ScriptCalls
from penstock.storage.redis.single_put import SinglePutEncoder

__all__ = ["CallNumbers", "PutBatch", "PutBatcher", "PutCalls", "indexes_by_queue", "read_puts"]

#: A batch of this many jobs is worth a call of its own, if a slot is idle.
ENOUGH = 32

#: `CallNumbers` remembers the names of this many threads.
_MAX_CALLERS = 1000

_QUEUED = Put(PutStatus.QUEUED, State.QUEUED)


# script calls --------------------------------------------------------------------------------------


class CallNumbers:
    """Numbers of the calls with made-up ids: `put.lua` runs each numbered call once, however often it arrives."""

    def __init__(self) -> None:
        self._name = new_token()
        self._callers: dict[tuple[int, int], str] = {}
        self._numbers = itertools.count(1)

    def next(self) -> tuple[str, int]:
        """Return the name of the caller and the number of its call.

        A caller is a thread: its calls to one queue follow each other, so their numbers arrive in ascending order
        unless a call is sent again.
        """
        where = os.getpid(), threading.get_ident()
        caller = self._callers.get(where)
        if caller is None:
            if len(self._callers) >= _MAX_CALLERS:  # threads come and go
                self._callers.clear()
            caller = self._callers[where] = f"{self._name}{where[0]:x}-{where[1]:x}"
        return caller, next(self._numbers)


class PutCalls:
    """Sends the calls of `put.lua`, each with jobs of one queue."""

    def __init__(
        self, connection: Connection, keys: Keys, calls: ScriptCalls, families: ClusterFamilies, schema: Schema,
        confirmer: Confirmer | None,
    ) -> None:  # fmt: skip
        self._connection = connection
        self._keys = keys
        self._calls = calls
        self._families = families
        self._schema = schema
        self._confirmer = confirmer
        #: One sequence for each slot of `PutBatcher`: the calls of one slot follow each other, those of two do not.
        self._numbers = CallNumbers(), CallNumbers()
        #: The sequences of bounded calls that are not under way: each is used by one call at a time.
        self._idle_numbers: list[CallNumbers] = []
        self._single = SinglePutEncoder(connection, calls) if calls.plain_server and confirmer is None else None

    @property
    def timeout(self) -> float | None:
        """The bound (seconds) of a call, if there is one."""
        return self._connection.timeout

    async def send(
        self, queue: str, jobs: Sequence[NewJob], *, fresh: bool, slot: int = 0, deadline: float | None = None
    ) -> list[Put]:  # fmt: skip
        """Store jobs of one queue and return their answers; jobs that have waited before give their deadline.

        A call whose ids were all made up just now (`fresh`) is numbered and can be sent again when its answer is
        lost. A call with ids of the user is sent once: sent again, it could undo what happened in between.
        """
        deadline = deadline or self._connection.deadline()
        if not self._schema.known:
            await self._schema.write(self._connection)
        plain = encode_plain_jobs(jobs, fresh=fresh) if self._calls.fast else None
        encoded = encode_jobs(jobs, fresh=fresh) if plain is None else plain
        caller, number, window, uncertain = "", 0, 0, False
        if fresh:
            caller, number = self._numbers[slot].next()
            if plain is not None and len(jobs) == 1 and self._single is not None:
                answer = await self._connection.try_once(self._single.encode(queue, caller, number, plain), deadline)
                if type(answer) is list:
                    return [_QUEUED] if answer[1] == 1 else read_puts(answer[1], 1, _QUEUED)
                uncertain = isinstance(answer, NoAnswer)
            window = self._connection.retry_window_ms
        args = caller, number, window, *encoded
        return await self._run(queue, jobs, args, repeat=fresh, deadline=deadline, uncertain=uncertain)

    async def send_bounded(self, jobs: Sequence[NewJob], max_queued: int) -> list[Put]:
        """Store jobs of one queue in one call; raises `QueueFull` if more than `max_queued` would wait."""
        if not self._schema.known:
            await self._schema.write(self._connection)
        queue, fresh = jobs[0].queue, all(job.fresh for job in jobs)
        try:
            numbers = self._idle_numbers.pop()
        except IndexError:
            numbers = CallNumbers()
        caller, number = numbers.next() if fresh else ("", 0)
        window = self._connection.retry_window_ms if fresh else 0
        args = caller, number, window, *encode_bounded_jobs(jobs, max_queued)
        answered = False
        try:
            puts = await self._run(queue, jobs, args, repeat=fresh, deadline=self._connection.deadline())
            answered = True
            return puts
        except QueueFull:
            answered = True
            raise
        finally:
            if answered:  # else the call may still arrive, after one with the next number
                self._idle_numbers.append(numbers)

    async def _run(
        self, queue: str, jobs: Sequence[NewJob], args: tuple[Any, ...], *,
        repeat: bool, deadline: float | None, uncertain: bool = False,
    ) -> list[Put]:  # fmt: skip
        """Run the script with these arguments and read its answers."""
        call, queued = self._calls.build("put", queue, args), _QUEUED
        if self._keys.cluster:
            call[1].append(self._keys.puts(queue, args[0]))
            await self._families.add(queue)
        if self._confirmer is None:
            created, answers = await self._connection.run(*call, repeat=repeat, deadline=deadline, uncertain=uncertain)
        else:
            mark = self._keys.confirmed(queue)
            (created, answers), report = await self._confirmer.run(*call, mark, repeat=repeat)
            queued = replace(_QUEUED, durability=report)
        if created < 0:
            waiting, added = answers
            raise QueueFull(queue, waiting, args[-1], added)
        if created:
            await self._families.add(queue, created=True)
        found = read_puts(answers, len(jobs), queued)
        if len(found) < len(jobs):  # it has met records that were too long for one call
            found += await self.send(queue, jobs[len(found) :], fresh=False, deadline=deadline)
        return found


def read_puts(answers: Any, count: int, queued: Put = _QUEUED) -> list[Put]:
    """Read the answers of `put.lua` for this many jobs; `queued` is that for a job that is queued."""
    if answers == 1:
        return [queued] * count
    return [queued if answer == 1 else _read_put(answer, queued.durability) for answer in answers]


def _read_put(answer: Any, report: DurabilityReport | None) -> Put:
    if answer[0] == b"refused":
        status, refused = PutStatus.DUPLICATE, True
    else:
        status, refused = PutStatus(answer[0].decode()), False
    result, until = (*answer[2:], None, None)[:2]
    return Put(status, State(answer[1].decode()), result, report, refused=refused, until=until)


# batches -------------------------------------------------------------------------------------------


class PutBatch:
    """Jobs of one queue for one script call: all with ids just made up, or none."""

    def __init__(self, fresh: bool) -> None:
        self.jobs: list[NewJob] = []
        self.fresh = fresh
        self.size = 0

    def take(self, jobs: Sequence[NewJob], start: int) -> int:
        """Take the job at `start` and more while they fit; return the index of the first that was not taken."""
        count, own = len(jobs), self.jobs
        while True:
            job = jobs[start]
            own.append(job)
            self.size += len(job.payload)
            start += 1
            if start == count or len(own) >= MAX_BATCH or self.size > MAX_BYTES or jobs[start].fresh != self.fresh:
                return start


class _WaitingBatch(PutBatch):
    """A batch that waits for a slot, and the futures of its callers."""

    def __init__(self, fresh: bool) -> None:
        super().__init__(fresh)
        #: For each caller its future, and the slice of the batch that is its own.
        self.callers: list[tuple[asyncio.Future[list[Put]], int, int]] = []
        #: Whether it may be under way together with another batch. If one of the two must be sent again, they may
        #: be stored in either order.
        self.unordered = fresh
        self.since = time.monotonic()

    def refuse(self, error: BaseException) -> None:
        """Raise an error in all callers that still wait."""
        for future, _, _ in self.callers:
            if not future.done():
                future.set_exception(error)
                future.exception()  # marks it as retrieved: a caller may have been cancelled


class _Backlog:
    """The batches of one queue that wait, and the slots on which its calls are under way."""

    __slots__ = ("answered", "batches", "idle_slots", "jobs", "peak", "starting")

    def __init__(self, idle_slots: list[int], jobs: int) -> None:
        self.batches: list[_WaitingBatch] = []
        self.idle_slots = idle_slots
        #: The number of sender tasks that have not looked into `batches` yet.
        self.starting = 0
        #: The number of jobs that wait or are under way, and the highest it has been.
        self.jobs = self.peak = jobs
        #: When the last call was answered, of those that batches waited for.
        self.answered = 0.0

    def add(self, count: int) -> None:
        self.jobs += count
        if self.jobs > self.peak:
            self.peak = self.jobs

    def next_batch(self, slot: int) -> _WaitingBatch | None:
        """Take the oldest batch; None if a slot other than 0 would have to carry one that keeps its order."""
        if not self.batches or (slot > 0 and not self.batches[0].unordered):
            return None
        return self.batches.pop(0)


def indexes_by_queue(jobs: Sequence[NewJob]) -> dict[str, list[int]]:
    """Return the indexes of the jobs of each queue."""
    by_queue: dict[str, list[int]] = {}
    for i, job in enumerate(jobs):
        by_queue.setdefault(job.queue, []).append(i)
    return by_queue


class PutBatcher:
    """Gathers the jobs that are put while calls are under way, and sends them together when a slot is idle.

    A queue has up to two slots, which are calls under way: the server runs one call while the client encodes or
    reads the other. The calls of one slot follow each other.
    """

    def __init__(self, calls: PutCalls, slots: int) -> None:
        self._calls = calls
        self._slots = slots
        self._backlogs: dict[str, _Backlog] = {}
        self._senders: set[asyncio.Task[None]] = set()

    async def put(self, jobs: Sequence[NewJob]) -> list[Put]:
        """Store jobs of any queues; return the answers in the order of the jobs."""
        if not jobs:
            return []
        count, queue = len(jobs), jobs[0].queue
        if queue not in self._backlogs and (count == 1 or _fit_one_call(jobs)):
            # No call of this queue is under way: send it from here. A sender task would cost a turn of the loop.
            backlog = self._backlogs[queue] = _Backlog([*range(1, self._slots)], count)
            try:
                puts = await self._calls.send(queue, jobs, fresh=jobs[0].fresh)
                backlog.answered = time.monotonic()
                return puts
            finally:
                backlog.jobs -= count
                self._free_slot(queue, backlog, 0)
        if count == 1:
            [answer] = self._enqueue(queue, jobs, keep_order=False)
            return await answer
        by_queue = indexes_by_queue(jobs)
        pending = [self._enqueue(name, [jobs[i] for i in by_queue[name]], keep_order=True) for name in by_queue]
        results = iter(await asyncio.gather(*itertools.chain(*pending), return_exceptions=True))
        answers: dict[int, Put] = {}
        for indexes, futures in zip(by_queue.values(), pending, strict=True):
            puts: list[Put] = []
            for result in itertools.islice(results, len(futures)):
                if isinstance(result, BaseException):
                    raise result
                puts += result
            answers.update(zip(indexes, puts, strict=True))
        return [answers[i] for i in range(count)]

    def _enqueue(self, queue: str, jobs: Sequence[NewJob], *, keep_order: bool) -> list[asyncio.Future[list[Put]]]:
        """Append jobs of one queue to its waiting batches; return their answers, a future for each batch used.

        With `keep_order` the jobs are stored in this order. Without it a batch takes its share of the backlog only,
        so that the next batch can go on the other slot.
        """
        backlog = self._backlogs.get(queue)
        if backlog is None:
            backlog = self._backlogs[queue] = _Backlog([*range(self._slots)], 0)
        backlog.add(len(jobs))
        share = MAX_BATCH if keep_order else min(MAX_BATCH, max(ENOUGH, backlog.peak // self._slots))
        loop, batches = asyncio.get_running_loop(), backlog.batches
        futures: list[asyncio.Future[list[Put]]] = []
        at = 0
        while at < len(jobs):
            batch = batches[-1] if batches else None
            fresh = jobs[at].fresh
            if batch is None or batch.fresh != fresh or len(batch.jobs) >= share or batch.size > MAX_BYTES:
                batch = _WaitingBatch(fresh)
                batches.append(batch)
            start = len(batch.jobs)
            at = batch.take(jobs, at)
            if keep_order or batch.jobs[-1].group is not None:
                batch.unordered = False
            future: asyncio.Future[list[Put]] = loop.create_future()
            batch.callers.append((future, start, len(batch.jobs)))
            futures.append(future)
        self._start_sender(queue, backlog)
        return futures

    def _start_sender(self, queue: str, backlog: _Backlog) -> None:
        """Start a sender on an idle slot, if one may carry a batch that waits.

        The sender runs in the next turn of the loop; until then other callers can join the batch.
        """
        if not backlog.idle_slots or backlog.starting >= len(backlog.batches):
            return
        slot = min(backlog.idle_slots)
        if slot == 0 or backlog.batches[backlog.starting].unordered:
            backlog.idle_slots.remove(slot)
            backlog.starting += 1
            sender = asyncio.get_running_loop().create_task(self._send_batches(queue, backlog, slot))
            self._senders.add(sender)
            sender.add_done_callback(self._senders.discard)

    async def _send_batches(self, queue: str, backlog: _Backlog, slot: int) -> None:
        """Send one batch after the other on a slot until none waits that it may carry."""
        backlog.starting -= 1
        batch = None
        try:
            while (batch := backlog.next_batch(slot)) is not None:
                deadline = None
                if self._calls.timeout is not None:  # a batch that waits while others are answered is not late
                    deadline = max(batch.since, backlog.answered) + self._calls.timeout
                try:
                    puts = await self._calls.send(queue, batch.jobs, fresh=batch.fresh, slot=slot, deadline=deadline)
                except Exception as error:
                    batch.refuse(error)
                else:
                    backlog.answered = time.monotonic()
                    for future, start, end in batch.callers:
                        if not future.done():
                            future.set_result(puts[start:end])
                backlog.jobs -= len(batch.jobs)
                await asyncio.sleep(0)  # yield once, so that callers just answered can join the next batch
        except BaseException as error:  # the event loop is being closed
            for left in ([] if batch is None else [batch]) + backlog.batches:
                left.refuse(error)
            backlog.batches.clear()
            raise
        finally:
            self._free_slot(queue, backlog, slot)

    def _free_slot(self, queue: str, backlog: _Backlog, slot: int) -> None:
        backlog.idle_slots.append(slot)
        if backlog.batches:
            self._start_sender(queue, backlog)
        elif len(backlog.idle_slots) == self._slots:
            del self._backlogs[queue]


def _fit_one_call(jobs: Sequence[NewJob]) -> bool:
    """Return whether one script call may carry all these jobs."""
    queue, fresh = jobs[0].queue, jobs[0].fresh
    size = 0
    for job in jobs:
        if job.queue != queue or job.fresh != fresh:
            return False
        size += len(job.payload)
    return len(jobs) <= MAX_BATCH and size <= MAX_BYTES
