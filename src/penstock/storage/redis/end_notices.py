"""Notices of the ends of jobs: this client asks for them, waits for them, and takes its requests back.

A client has one channel for all of them. Any user of the server who may publish could write to it, so each notice has a
seal, made with a secret that is only in this client and in `waits`; messages without it are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from enum import IntEnum

from redis.exceptions import RedisError

from penstock.aio import RequestCoalescer
from penstock.errors import StorageError
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, EndNotice
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.event_codec import read_end_notice, unseal
from penstock.storage.redis.subscription import Subscription

__all__ = ["EndNotices", "Joined"]

#: A waiter asks again after this many seconds without a notice, or after fewer if the job has too many waiters, because
#: then there will be no notice.
_RECHECK, _RECHECK_CROWDED = 5.0, 1.0
#: How long (seconds) a put waits for the subscription of its caller.
_SUBSCRIBE_TIMEOUT = 1.0
#: Notices of at most this many jobs are expected before a caller waits for them.
_MAX_EXPECTED = 10_000
#: A request is taken back this long (seconds) after the last caller has given up: many callers wait again at once.
_LEAVE_AFTER = 1.0
#: How long (seconds) the requests are taken back when the storage is closed.
_LEAVE_TIMEOUT = 1.0

#: Whether a job may have ended; an end notice has its result. False if the time is over.
Hint = bool | EndNotice
#: The queue and the id of a job.
JobKey = tuple[str, str]


class Joined(IntEnum):
    """The answer of `wait_done.lua` for one job."""

    WAITING = 0
    OVER = 1
    CROWDED = 2


class EndNotices:
    """The jobs whose ends this client waits for. Its subscription is opened when it is first used."""

    def __init__(
        self,
        connection: Connection,
        channel: str,
        join: Callable[[str, list[str], str], Awaitable[list[Joined]]],
        leave: Callable[[str, Sequence[str], str], Awaitable[None]],
        subscribe: Callable[[str, Callable[[bytes], None]], AbstractAsyncContextManager[Subscription]],
    ) -> None:
        self._connection = connection
        self._channel = channel
        self._secret = secrets.token_hex(16)
        #: This client as `waits` names it.
        self._waiter = self._secret + channel
        self._joins = RequestCoalescer(lambda queue, ids: join(queue, ids, self._waiter), MAX_BATCH)
        self._leave_jobs = leave
        self._subscribe = subscribe
        self._waiters: dict[JobKey, set[asyncio.Future[Hint]]] = {}
        #: Jobs that were put together with a request for their end notice, by callers that are about to wait for
        #: them; and whether their ids were fresh.
        self._expected: dict[JobKey, tuple[asyncio.Future[Hint], bool]] = {}
        #: Jobs of which `waits` may name this client, and those of them that no caller waits for any more.
        self._joined: set[JobKey] = set()
        self._abandoned: set[JobKey] = set()
        self._leave_timer: asyncio.TimerHandle | None = None
        self._leaver: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._subscribed = asyncio.Event()

    async def close(self) -> None:
        if self._leave_timer is not None:
            self._leave_timer.cancel()
            self._leave_timer = None
        listener, self._listener = self._listener, None
        for task in (listener, self._leaver):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._joined:
            with contextlib.suppress(StorageError, TimeoutError):
                async with asyncio.timeout(_LEAVE_TIMEOUT):
                    await self._leave(self._joined)
        self._joined.clear()
        self._abandoned.clear()
        self._wake(self._waiters)
        self._subscribed.set()  # waiters go on, and get the error of a closed storage
        await self._joins.close()

    # waiting ---------------------------------------------------------------------------------------

    async def expect(self, jobs: Sequence[NewJob]) -> str | None:
        """Expect the ends of jobs that are about to be put; return the waiter to put them with.

        None if the subscription is not confirmed in time.
        """
        if not self._subscribed.is_set() or self._listener is None or self._listener.done():
            try:
                async with asyncio.timeout(_SUBSCRIBE_TIMEOUT):
                    await self._open()
            except TimeoutError:
                return None
        loop = asyncio.get_running_loop()
        for new in jobs:
            job = new.queue, new.id
            if job in self._expected:
                continue  # a second caller asks for the end when it waits
            future: asyncio.Future[Hint] = loop.create_future()
            self._expected[job] = future, new.fresh
            self._waiters.setdefault(job, set()).add(future)
            self._joined.add(job)
        while len(self._expected) > _MAX_EXPECTED:  # their callers never waited
            self.forget([next(iter(self._expected))])
        return self._waiter

    def forget(self, jobs: Sequence[JobKey], *, joined: bool = True) -> None:
        """Stop expecting the ends of these jobs; unless `joined` the storage has no request for them."""
        for job in jobs:
            if job in self._expected:
                future, _ = self._expected.pop(job)
                if not joined and self._waiters[job] == {future}:
                    self._joined.discard(job)
                self._drop(job, future)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        """Subscribe, then ask for a notice of the end; ask again now and then, in case it was lost.

        The end notice is returned only for a fresh id: that of another may be from an earlier job with the same id.
        """
        loop, job = asyncio.get_running_loop(), (queue, id)
        deadline = loop.time() + timeout
        future, fresh = self._expected.pop(job, (None, False))
        if future is not None:  # the notice was asked for with the put
            try:
                hint = await _hint_within(future, min(_RECHECK, timeout))
            finally:
                self._drop(job, future)
            if hint or timeout <= _RECHECK:
                return hint if fresh else bool(hint)
        future = loop.create_future()
        self._waiters.setdefault(job, set()).add(future)
        try:
            while (left := deadline - loop.time()) > 0:
                try:
                    async with asyncio.timeout(left):
                        await self._open()
                except TimeoutError:
                    return False
                self._joined.add(job)
                answer = await self._joins.get(queue, id)
                if answer is Joined.OVER:
                    self._joined.discard(job)
                    return True
                pause = _RECHECK_CROWDED if answer is Joined.CROWDED else _RECHECK
                if await _hint_within(future, min(pause, max(0.0, deadline - loop.time()))):
                    return True
            return False
        finally:
            self._drop(job, future)

    def _drop(self, job: JobKey, future: asyncio.Future[Hint]) -> None:
        waiting = self._waiters.get(job, set())
        waiting.discard(future)
        if not waiting:
            self._waiters.pop(job, None)
            if job in self._joined:
                self._abandoned.add(job)
                self._leave_later()

    # giving up -------------------------------------------------------------------------------------

    def _leave_later(self) -> None:
        if self._leave_timer is None:
            self._leave_timer = asyncio.get_running_loop().call_later(_LEAVE_AFTER, self._start_leaving)

    def _start_leaving(self) -> None:
        self._leave_timer = None
        if self._leaver is not None and not self._leaver.done():
            return self._leave_later()
        abandoned, self._abandoned = self._abandoned, set()
        jobs = [job for job in abandoned if job in self._joined and job not in self._waiters]
        if jobs:
            self._leaver = asyncio.create_task(self._leave_quietly(jobs), name="penstock-redis-leave")

    async def _leave_quietly(self, jobs: list[JobKey]) -> None:
        with contextlib.suppress(StorageError):  # the end of the job removes the request too
            await self._leave(jobs)

    async def _leave(self, jobs: Sequence[JobKey] | set[JobKey]) -> None:
        """Take back the requests for notices of these jobs."""
        by_queue: dict[str, list[str]] = {}
        for queue, id in list(jobs):
            by_queue.setdefault(queue, []).append(id)
        self._joined.difference_update(list(jobs))
        for queue, ids in by_queue.items():
            for at in range(0, len(ids), MAX_BATCH):
                await self._leave_jobs(queue, ids[at : at + MAX_BATCH], self._waiter)
        self._wake(list(jobs))  # a caller that waits again meanwhile asks again

    # messages --------------------------------------------------------------------------------------

    async def _open(self) -> None:
        if self._listener is None or self._listener.done():
            _ = self._connection.client  # an error when the storage is not open
            self._subscribed.clear()
            self._listener = asyncio.create_task(self._receive(), name="penstock-redis-done")
        await self._subscribed.wait()

    async def _receive(self) -> None:
        """Deliver end notices; after a broken connection wake all waiters, which then ask by themselves."""
        while True:
            try:
                async with self._subscribe(self._channel, self._deliver) as subscription:
                    self._subscribed.set()
                    await subscription.wait_closed()
            except (RedisError, OSError, StorageError):
                self._subscribed.clear()
                self._wake(self._waiters)
                await asyncio.sleep(random.uniform(0.05, 0.3))

    def _deliver(self, data: bytes) -> None:
        message = unseal(data, self._secret)
        if message is None:  # a message that Penstock did not publish
            return
        try:
            job, notice = read_end_notice(message)
        except ValueError:
            return
        self._joined.discard(job)
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(notice or True)

    def _wake(self, jobs: Sequence[JobKey] | dict[JobKey, set[asyncio.Future[Hint]]]) -> None:
        for job in jobs:
            for future in self._waiters.get(job, ()):
                if not future.done():
                    future.set_result(True)


async def _hint_within(future: asyncio.Future[Hint], seconds: float) -> Hint:
    """Wait for a hint without cancelling its future; return False if it takes longer.

    It needs one timer; `asyncio.wait_for` with `shield` would need two more futures.
    """
    if future.done():
        return future.result()
    loop = asyncio.get_running_loop()
    result: asyncio.Future[Hint] = loop.create_future()

    def pass_on(hint: asyncio.Future[Hint]) -> None:
        if not result.done():
            result.set_result(hint.result())

    timer = loop.call_later(seconds, lambda: result.done() or result.set_result(False))
    future.add_done_callback(pass_on)
    try:
        return await result
    finally:
        timer.cancel()
        future.remove_done_callback(pass_on)
