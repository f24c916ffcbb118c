"""Notifier: wakes waiters for work, for ends of jobs and for cancel requests, and delivers events.

A lost message costs time, never a job: each waiter also looks by itself now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Iterable, Sequence

from redis.exceptions import RedisError

from penstock.errors import StorageError
from penstock.model.ids import family_of, new_token
from penstock.storage.base import EventRecord
from penstock.storage.redis.clients import close
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.end_notices import EndNotices, Joined
from penstock.storage.redis.event_codec import read_events, unseal
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.listener_marks import ListenerMarks
from penstock.storage.redis.subscription import Subscription

__all__ = ["Notifier"]

#: The mark of an event listener is renewed this often (seconds).
_MARK_EVERY = 2.0
#: The subscription to cancel requests of a worker that has not waited for this long (seconds) is closed.
_UNUSED_AFTER = 120.0
#: A worker looks for cancel requests at most once in this time (seconds), however many messages come.
_LOOK_EVERY = 0.1
#: How long (seconds) a wait that is cancelled may take to pass a hint on.
_PASS_ON_WITHIN = 1.0


class Notifier:
    """The waiting verbs of a `RedisStorage`; `ends` has `wait_done`. Its connections are opened when first used."""

    def __init__(
        self,
        connection: Connection,
        keys: Keys,
        join: Callable[[str, list[str], str], Awaitable[list[Joined]]],
        leave: Callable[[str, Sequence[str], str], Awaitable[None]],
        wake: Callable[[Sequence[str]], Awaitable[None]],
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._wake = wake
        self.ends = EndNotices(connection, keys.done(new_token()), join, leave, self._subscribed)
        self._cancel_subscriptions: dict[str, _CancelSubscription] = {}

    async def close(self) -> None:
        await self.ends.close()
        subscriptions, self._cancel_subscriptions = self._cancel_subscriptions, {}
        for subscription in subscriptions.values():
            await subscription.close()

    # work ------------------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Block on the wake lists of the queues: in one command, or in one for each family on a Cluster."""
        try:
            return await self._block(queues, timeout)
        except asyncio.CancelledError:
            await self._pass_on(queues)
            raise

    async def _pass_on(self, queues: Sequence[str]) -> None:
        """Wake another waiter: the server may have given a hint to the connection that was closed.

        It goes on giving hints to that connection until it has read the end of it, so the first call is the round
        trip after which it has, and the hint of the second one is not lost.
        """
        with contextlib.suppress(StorageError, TimeoutError):
            async with asyncio.timeout(_PASS_ON_WITHIN):
                for _ in range(2):
                    await self._wake(queues)

    async def _block(self, queues: Sequence[str], timeout: float) -> bool:
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

    async def events(
        self, queue: str | None = None, names: Collection[str] | None = None
    ) -> AsyncGenerator[EventRecord]:
        """Yield the events from the first step of this iterator on."""
        while True:
            try:
                async with self._subscribed_to_events(queue, names) as (subscription, marks):
                    while True:
                        for event in _published_events(await subscription.next_message(), marks.secrets):
                            yield event
            except (RedisError, OSError, StorageError):
                await asyncio.sleep(random.uniform(0.05, 0.3))

    @contextlib.asynccontextmanager
    async def _subscribed_to_events(
        self, queue: str | None, names: Collection[str] | None
    ) -> AsyncGenerator[tuple[Subscription, ListenerMarks]]:
        """Subscribe to the events, and keep the marks without which the scripts publish none."""
        marks = ListenerMarks(self._connection, self._keys, queue, names)
        try:
            async with self._subscribed(marks.channel) as subscription:
                await marks.set()
                async with _repeating(marks.set, _MARK_EVERY):
                    yield subscription, marks
        finally:
            with contextlib.suppress(StorageError):
                await marks.remove()


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
        #: When a wait was last ended by a message.
        self._last_message = 0.0
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
                await asyncio.sleep(self._last_message + _LOOK_EVERY - time.monotonic())
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            self._last_wait = time.monotonic()
        self._last_message = time.monotonic()
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


def _published_events(data: bytes, secrets: Iterable[str]) -> list[EventRecord]:
    """Return the events in a message with a seal; none of a message that Penstock did not publish."""
    for secret in secrets:
        if (message := unseal(data, secret)) is not None:
            return read_events(message)
    return []
