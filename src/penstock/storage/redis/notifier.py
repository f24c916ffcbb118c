"""Hints and feeds: being woken by work, by an end, and by events. A lost message costs time, never a job."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

from redis.exceptions import RedisError

from penstock.aio import RequestCoalescer
from penstock.errors import StorageError
from penstock.model.ids import family_of, new_token
from penstock.model.job import NewJob
from penstock.storage.base import MAX_BATCH, EndNotice, EventRecord
from penstock.storage.redis.clients import close
from penstock.storage.redis.cluster_families import EARS_MS
from penstock.storage.redis.connection import Connection
from penstock.storage.redis.event_codec import read_note, read_told
from penstock.storage.redis.keys import Keys
from penstock.storage.redis.subscription import Subscription

__all__ = ["Feeds"]

#: How often a listener's mark is renewed.
_EARS_EVERY = 2.0
#: A waiter asks again this often even if nobody tells it anything.
_RECHECK = 5.0
#: Who has not waited for requests to cancel for so long does not do so any more.
_EAR_REST = 120.0
#: How long a put waits for the listener of its caller; how many ends are listened for before anybody waits.
_READY, _MOST_EXPECTED = 1.0, 10_000


#: That a job may have ended, or how it did; False when nothing was heard.
Hint = bool | EndNotice


class Feeds:
    """The waiting side of a `RedisStorage`; opens its connections when first used."""

    def __init__(
        self, connection: Connection, keys: Keys, ask: Callable[[str, list[str], str], Awaitable[list[bool]]]
    ) -> None:
        self._connection = connection
        self._keys = keys
        self._asks = RequestCoalescer(lambda queue, ids: ask(queue, ids, self._channel), MAX_BATCH)
        self._channel = keys.done(new_token())
        self._waiters: dict[tuple[str, str], set[asyncio.Future[Hint]]] = {}
        #: Jobs that are put together with the request to be told, by whoever is about to wait for them; whether
        #: their ids are fresh.
        self._expected: dict[tuple[str, str], tuple[asyncio.Future[Hint], bool]] = {}
        self._listener: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()
        self._ears: dict[str, _Ear] = {}

    async def close(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await listener
        ears, self._ears = self._ears, {}
        for ear in ears.values():
            await ear.close()
        self._wake_all()
        self._listening.set()  # whoever waits for the listener goes on, and finds out
        await self._asks.close()

    # work ------------------------------------------------------------------------------------------

    async def wait_work(self, queues: Sequence[str], timeout: float) -> bool:
        """Block on the wake lists of the queues: of all at once, or family by family on a Cluster."""
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
        """Listen for the ends of jobs that are to be put; gives the channel to tell, None if nobody can listen now."""
        if not self._listening.is_set() or self._listener is None or self._listener.done():
            try:
                async with asyncio.timeout(_READY):
                    await self._listen()
            except TimeoutError:
                return None
        loop = asyncio.get_running_loop()
        for new in jobs:
            job = new.queue, new.id
            if job in self._expected:
                continue  # whoever comes second asks
            future: asyncio.Future[Hint] = loop.create_future()
            self._expected[job] = future, new.fresh
            self._waiters.setdefault(job, set()).add(future)
        while len(self._expected) > _MOST_EXPECTED:  # nobody came to wait for them
            self.forget([next(iter(self._expected))])
        return self._channel

    def forget(self, jobs: Sequence[tuple[str, str]]) -> None:
        """Nobody will wait for these."""
        for job in jobs:
            if job in self._expected:
                self._drop(job, self._expected.pop(job)[0])

    def _drop(self, job: tuple[str, str], future: asyncio.Future[Hint]) -> None:
        waiting = self._waiters.get(job, set())
        waiting.discard(future)
        if not waiting:
            self._waiters.pop(job, None)

    async def wait_done(self, queue: str, id: str, timeout: float) -> bool | EndNotice:
        """Listen first, then ask to be told; ask again now and then, in case the telling was lost.

        How the job ended is given only for an id that nobody had before: of another it may be old news.
        """
        loop, job = asyncio.get_running_loop(), (queue, id)
        deadline = loop.time() + timeout
        future, fresh = self._expected.pop(job, (None, False))
        if future is not None:  # it was asked for when the job was put
            try:
                hint = await _heard_within(future, min(_RECHECK, timeout))
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
                        await self._listen()
                except TimeoutError:
                    return False
                if await self._asks.get(queue, id):
                    return True
                if await _heard_within(future, min(_RECHECK, max(0.0, deadline - loop.time()))):
                    return True
            return False
        finally:
            self._drop(job, future)

    async def _listen(self) -> None:
        if self._listener is None or self._listener.done():
            _ = self._connection.client  # an error when the storage is not open
            self._listening.clear()
            self._listener = asyncio.create_task(self._hear(), name="penstock-redis-done")
        await self._listening.wait()

    async def _hear(self) -> None:
        """Pass on what the server says; after a broken connection everybody looks for themselves."""
        while True:
            try:
                async with self._subscribed(self._channel, self._tell) as subscription:
                    self._listening.set()
                    await subscription.over()
            except (RedisError, OSError, StorageError):
                self._listening.clear()
                self._wake_all()
                await asyncio.sleep(random.uniform(0.05, 0.3))

    def _tell(self, data: bytes) -> None:
        try:
            job, told = read_told(data)
        except ValueError:  # not of our making
            return
        for future in self._waiters.get(job, ()):
            if not future.done():
                future.set_result(told or True)

    def _wake_all(self) -> None:
        for futures in self._waiters.values():
            for future in futures:
                if not future.done():
                    future.set_result(True)

    @contextlib.asynccontextmanager
    async def _subscribed(
        self, channel: str, hear: Callable[[bytes], None] | None = None
    ) -> AsyncGenerator[Subscription]:
        """A subscription that the server has confirmed."""
        client = self._connection.subscriber()
        try:
            subscription = await Subscription.open(client.connection_pool, channel, self._connection.silence, hear)
            try:
                yield subscription
            finally:
                subscription.close()
        finally:
            with contextlib.suppress(RedisError, OSError):
                await close(client)

    # cancels ---------------------------------------------------------------------------------------

    async def wait_cancel(self, worker: str, timeout: float) -> bool:
        """Wait for a word on the worker's channel; what is said between two waits is heard by the second."""
        if worker not in self._ears:
            await self._close_unused_ears()
        ear = self._ears.get(worker)
        if ear is None:
            _ = self._connection.client  # an error when the storage is not open
            channel = self._keys.cancel(worker)
            ear = self._ears[worker] = _Ear(lambda hear: self._subscribed(channel, hear))
        return await ear.wait(timeout)

    async def _close_unused_ears(self) -> None:
        for worker, ear in list(self._ears.items()):
            if ear.unused > _EAR_REST:
                del self._ears[worker]
                await ear.close()

    # events ----------------------------------------------------------------------------------------

    async def events(self, queue: str | None = None) -> AsyncGenerator[EventRecord]:
        """Everything that happens from the first step of this iterator on."""
        while True:
            try:
                async with self._listened() as subscription:
                    while True:
                        note = _heard(await subscription.said())
                        if note is not None and queue in (None, note.queue):
                            yield note
            except (RedisError, OSError, StorageError):
                await asyncio.sleep(random.uniform(0.05, 0.3))

    @contextlib.asynccontextmanager
    async def _listened(self) -> AsyncGenerator[Subscription]:
        """A subscription to the feed, and the mark that makes the scripts feed it."""
        try:
            async with self._subscribed(self._keys.events) as subscription:
                await self._open_ears()
                async with _repeating(self._open_ears, _EARS_EVERY):
                    yield subscription
        finally:
            with contextlib.suppress(StorageError):
                await self._shut_ears()

    async def _shut_ears(self) -> None:
        """Take the mark away if nobody else listens."""
        if not await self._connection.listeners(self._keys.events):
            for ears in await self._all_ears():
                await self._connection.command("DEL", ears)

    async def _open_ears(self) -> None:
        """Tell the scripts that somebody listens."""
        for ears in await self._all_ears():
            await self._connection.command("SET", ears, self._keys.events, "PX", EARS_MS)

    async def _all_ears(self) -> list[str]:
        """One mark, or on a Cluster one in each family, and one beside the workers for what they announce."""
        if not self._keys.cluster:
            return [self._keys.ears("")]
        families = await self._connection.command("SMEMBERS", self._keys.families)
        return [self._keys.ears(name) for name in {"workers", *(family.decode() for family in families)}]


class _Ear:
    """Listens to one channel until closed; before the server says so there may have been something."""

    def __init__(
        self, subscribed: Callable[[Callable[[bytes], None]], contextlib.AbstractAsyncContextManager[Subscription]]
    ) -> None:
        self._subscribed = subscribed
        self._heard = asyncio.Event()
        self._waiting = 0
        self._waited = time.monotonic()
        self._task = asyncio.create_task(self._listen(), name="penstock-redis-cancels")

    @property
    def unused(self) -> float:
        """For how long (seconds) nobody has waited."""
        return 0.0 if self._waiting else time.monotonic() - self._waited

    async def wait(self, timeout: float) -> bool:
        """Whether something was said since the last wait, or is before the timeout."""
        self._waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._heard.wait()
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1
            self._waited = time.monotonic()
        self._heard.clear()
        return True

    async def close(self) -> None:
        """Stop listening, and let who waits look."""
        self._heard.set()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _listen(self) -> None:
        while True:
            try:
                async with self._subscribed(lambda _: self._heard.set()) as subscription:
                    self._heard.set()
                    await subscription.over()
            except (RedisError, OSError, StorageError):
                await asyncio.sleep(random.uniform(0.05, 0.3))


async def _heard_within(future: asyncio.Future[Hint], seconds: float) -> Hint:
    """What a waiter is told; False, and it may be told later, when that takes longer. No task, no more than a timer."""
    if future.done():
        return future.result()
    loop = asyncio.get_running_loop()
    over: asyncio.Future[Hint] = loop.create_future()

    def hear(told: asyncio.Future[Hint]) -> None:
        if not over.done():
            over.set_result(told.result())

    timer = loop.call_later(seconds, lambda: over.done() or over.set_result(False))
    future.add_done_callback(hear)
    try:
        return await over
    finally:
        timer.cancel()
        future.remove_done_callback(hear)


@contextlib.asynccontextmanager
async def _repeating(action: Callable[[], Awaitable[None]], every: float) -> AsyncGenerator[None]:
    """Do something again and again beside the body; trouble is tried again."""

    async def again() -> None:
        while True:
            await asyncio.sleep(every)
            with contextlib.suppress(StorageError):
                await action()

    task = asyncio.create_task(again(), name="penstock-redis-ears")
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _heard(data: bytes) -> EventRecord | None:
    try:
        return read_note(data)
    except ValueError:  # not of our making
        return None
