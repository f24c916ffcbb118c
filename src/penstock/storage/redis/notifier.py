"""Notifier: wakes waiters for work, for ends of jobs and for cancel requests, and delivers events.

A lost message costs time, never a job: each waiter also looks by itself now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import secrets
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from redis.exceptions import RedisError

from penstock.aio import RequestCoalescer
from penstock.errors import StorageError
from penstock.model.ids import family_of, new_token
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, EndNotice, EventRecord
from penstock.storage.redis.clients import close
from penstock.storage.redis.cluster_families import LISTENER_MARK_MS
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.event_codec import read_end_notice, read_event
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.scripts import DELETE_IF_EQUAL
from penstock.storage.redis.subscription import Subscription

__all__ = ["Notifier"]

#: The mark of an event listener is renewed this often (seconds).
_MARK_EVERY = 2.0
#: A waiter asks again after this many seconds without a notice.
_RECHECK = 5.0
#: The subscription to cancel requests of a worker that has not waited for this long (seconds) is closed.
_UNUSED_AFTER = 120.0
#: How long (seconds) a put waits for the subscription of its caller.
_SUBSCRIBE_TIMEOUT = 1.0
#: Notices of at most this many jobs are expected before a caller waits for them.
_MAX_EXPECTED = 10_000


#: Whether a job may have ended; an end notice has its result. False if the time is over.
Hint = bool | EndNotice


class Notifier:
    """The waiting verbs of a `RedisStorage`. Its connections are opened when they are first used."""

    def __init__(
        self, connection: Connection, keys: Keys, ask: Callable[[str, list[str], str], Awaitable[list[bool]]]
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._asks = RequestCoalescer(lambda queue, ids: ask(queue, ids, self._channel), MAX_BATCH)
        self._channel = keys.done(new_token())
        self._waiters: dict[tuple[str, str], set[asyncio.Future[Hint]]] = {}
        #: Jobs that were put together with a request for their end notice, by callers that are about to wait for
        #: them; and whether their ids were fresh.
        self._expected: dict[tuple[str, str], tuple[asyncio.Future[Hint], bool]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._subscribed_to_ends = asyncio.Event()
        self._cancel_subscriptions: dict[str, _CancelSubscription] = {}

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener
        subscriptions, self._cancel_subscriptions = self._cancel_subscriptions, {}
        for subscription in subscriptions.values():
            await subscription.close()
        self._wake_all()
        self._subscribed_to_ends.set()  # waiters go on, and get the error of a closed storage
        await self._asks.close()

    # work ------------------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Block on the wake lists of the queues: in one command, or in one for each family on a Cluster."""
        lists: dict[str, list[str]] = {}
        for queue in queues:
            slot = family_of(queue) if self._keys.cluster else ""
            lists.setdefault(slot, []).append(self._keys.prefix(queue) + "wake")
        if not lists:
            await asyncio.sleep(timeout)
            return False
        if len(lists) == 1:
            return await self._connection.pop(next(iter(lists.values())), timeout)
        tasks = [asyncio.ensure_future(self._connection.pop(keys, timeout)) for keys in lists.values()]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return any(task.result() for task in done)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # ends ------------------------------------------------------------------------------------------

    async def expect(self, jobs: Sequence[NewJob]) -> str | None:
        """Expect the ends of jobs that are about to be put; return the channel for the notices.

        None if the subscription is not confirmed in time.
        """
        if not self._subscribed_to_ends.is_set() or self._listener is None or self._listener.done():
            try:
                async with asyncio.timeout(_SUBSCRIBE_TIMEOUT):
                    await self._subscribe_to_ends()
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
        while len(self._expected) > _MAX_EXPECTED:  # their callers never waited
            self.forget([next(iter(self._expected))])
        return self._channel

    def forget(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Stop expecting the ends of these jobs."""
        for job in jobs:
            if job in self._expected:
                self._drop(job, self._expected.pop(job)[0])

    def _drop(self, job: tuple[str, str], future: asyncio.Future[Hint]) -> None:
        waiting = self._waiters.get(job, set())
        waiting.discard(future)
        if not waiting:
            self._waiters.pop(job, None)

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
                        await self._subscribe_to_ends()
                except TimeoutError:
                    return False
                if await self._asks.get(queue, id):
                    return True
                if await _hint_within(future, min(_RECHECK, max(0.0, deadline - loop.time()))):
                    return True
            return False
        finally:
            self._drop(job, future)

    async def _subscribe_to_ends(self) -> None:
        if self._listener is None or self._listener.done():
            _ = self._connection.client  # an error when the storage is not open
            self._subscribed_to_ends.clear()
            self._listener = asyncio.create_task(self._receive_ends(), name="penstock-redis-done")
        await self._subscribed_to_ends.wait()

    async def _receive_ends(self) -> None:
        """Deliver end notices; after a broken connection wake all waiters, which then ask by themselves."""
        while True:
            try:
                async with self._subscribed(self._channel, self._deliver_end) as subscription:
                    self._subscribed_to_ends.set()
                    await subscription.wait_closed()
            except (RedisError, OSError, StorageError):
                self._subscribed_to_ends.clear()
                self._wake_all()
                await asyncio.sleep(random.uniform(0.05, 0.3))

    def _deliver_end(self, data: bytes) -> None:
        try:
            job, notice = read_end_notice(data)
        except ValueError:  # a message that Penstock did not publish
            return
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(notice or True)

    def _wake_all(self) -> None:
        for futures in self._waiters.values():
            for future in futures:
                if not future.done():
                    future.set_result(True)

    @contextlib.asynccontextmanager
    async def _subscribed(
        self, channel: str, on_message: Callable[[bytes], None] | None = None
    ) -> AsyncGenerator[Subscription]:
        """Open a subscription, confirmed by the server, and close it afterwards."""
        client = self._connection.subscriber()
        try:
            subscription = await Subscription.open(
                client.connection_pool, channel, self._connection.read_timeout, on_message
            )
            try:
                yield subscription
            finally:
                subscription.close()
        finally:
            with contextlib.suppress(RedisError, OSError):
                await close(client)

    # cancels ---------------------------------------------------------------------------------------

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Wait for a cancel request on the worker's channel; one that came between two waits ends the second."""
        if worker not in self._cancel_subscriptions:
            await self._close_unused()
        subscription = self._cancel_subscriptions.get(worker)
        if subscription is None:
            _ = self._connection.client  # an error when the storage is not open
            channel = self._keys.cancel(worker)
            subscription = _CancelSubscription(lambda on_message: self._subscribed(channel, on_message))
            self._cancel_subscriptions[worker] = subscription
        return await subscription.wait(timeout)

    async def forget_worker(self, worker: str) -> None:
        """Close the subscription of a worker that has left, and with it a connection and a task."""
        subscription = self._cancel_subscriptions.pop(worker, None)
        if subscription is not None:
            await subscription.close()

    async def _close_unused(self) -> None:
        for worker, subscription in list(self._cancel_subscriptions.items()):
            if subscription.unused > _UNUSED_AFTER:
                del self._cancel_subscriptions[worker]
                await subscription.close()

    # events ----------------------------------------------------------------------------------------

    async def events(self, queue: str | None = None) -> AsyncGenerator[EventRecord]:
        """Yield the events from the first step of this iterator on."""
        while True:
            try:
                async with self._subscribed_to_events() as subscription:
                    while True:
                        event = _event_or_none(await subscription.next_message())
                        if event is not None and queue in (None, event.queue):
                            yield event
            except (RedisError, OSError, StorageError):
                await asyncio.sleep(random.uniform(0.05, 0.3))

    @contextlib.asynccontextmanager
    async def _subscribed_to_events(self) -> AsyncGenerator[Subscription]:
        """Subscribe to the events, and keep the mark without which the scripts publish none."""
        mark = f"{secrets.token_hex(8)}{self._keys.events}"  # the owner and the channel
        try:
            async with self._subscribed(self._keys.events) as subscription:
                await self._set_marks(mark)
                async with _repeating(lambda: self._set_marks(mark), _MARK_EVERY):
                    yield subscription
        finally:
            with contextlib.suppress(StorageError):
                await self._remove_marks(mark)

    async def _remove_marks(self, mark: str) -> None:
        """Remove the marks if there is no other listener; those that one has set meanwhile have another owner."""
        if not await self._connection.listeners(self._keys.events):
            for key in await self._marks():
                await self._connection.run(DELETE_IF_EQUAL, [key], [mark], repeat=True)

    async def _set_marks(self, mark: str) -> None:
        """Set the marks that make the scripts publish events."""
        for key in await self._marks():
            await self._connection.write("SET", key, mark, "PX", LISTENER_MARK_MS)

    async def _marks(self) -> list[str]:
        """Return the keys of the marks: one, or on a Cluster one for each family and one for the workers."""
        if not self._keys.cluster:
            return [self._keys.listeners("")]
        families = await self._connection.command("SMEMBERS", self._keys.families)
        return [self._keys.listeners(name) for name in {"workers", *(family.decode() for family in families)}]


class _CancelSubscription:
    """A subscription to the cancel requests of one worker.

    Until SUBSCRIBE is confirmed a message may have been missed, so the confirmation counts as one.
    """

    def __init__(
        self, subscribed: Callable[[Callable[[bytes], None]], contextlib.AbstractAsyncContextManager[Subscription]]
    ) -> None:
        self._subscribed = subscribed
        self._requested = asyncio.Event()
        self._waiting = 0
        self._last_wait = time.monotonic()
        self._task = asyncio.create_task(self._listen(), name="penstock-redis-cancels")

    @property
    def unused(self) -> float:
        """The time (seconds) since the last wait ended."""
        return 0.0 if self._waiting else time.monotonic() - self._last_wait

    async def wait(self, timeout: float) -> bool:
        """Return True if there was a message since the last wait or there is one in time, else False."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._requested.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            self._last_wait = time.monotonic()
        self._requested.clear()
        return True

    async def close(self) -> None:
        """Close the subscription and wake its waiters."""
        self._requested.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _listen(self) -> None:
        while True:
            try:
                async with self._subscribed(lambda _: self._requested.set()) as subscription:
                    self._requested.set()
                    await subscription.wait_closed()
            except (RedisError, OSError, StorageError):
                await asyncio.sleep(random.uniform(0.05, 0.3))


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


@contextlib.asynccontextmanager
async def _repeating(action: Callable[[], Awaitable[None]], every: float) -> AsyncGenerator[None]:
    """Repeat an action while the body runs; a `StorageError` is retried the next time."""

    async def again() -> None:
        while True:
            await asyncio.sleep(every)
            with contextlib.suppress(StorageError):
                await action()

    task = asyncio.create_task(again(), name="penstock-redis-listener")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _event_or_none(data: bytes) -> EventRecord | None:
    try:
        return read_event(data)
    except ValueError:  # a message that Penstock did not publish
        return None
