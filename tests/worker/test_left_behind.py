"""Nothing of a run stays alive after it: no payload, no exception, no local variable of its handler."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from penstock import Entry, Job, Penstock, State, StorageError, StorageUnavailable, Worker
from tests.support import eventually


class Payload(msgspec.Struct, weakref=True):
    """A payload that can be referred to weakly."""

    n: int


class Local:
    """A local variable of a handler."""


class OwnError(Exception):
    """An exception of a handler."""


@pytest.fixture
def no_collector() -> Iterator[None]:
    """The garbage collector is off, so that only references keep objects alive."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Watch:
    """Weak references to the objects of runs."""

    def __init__(self) -> None:
        self.refs: list[weakref.ref[Any]] = []

    def work(self, payload: Payload, job: Any) -> int:
        local = Local()
        self.refs += [weakref.ref(payload), weakref.ref(local)]
        if payload.n % 2:
            error = OwnError("no", payload)
            self.refs.append(weakref.ref(error))
            try:
                raise error
            finally:
                del error
        return payload.n

    @property
    def alive(self) -> list[Any]:
        return [found for ref in self.refs if (found := ref()) is not None]


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("style", ["async", "plain", "async batch", "plain batch", "async and suspended"])
async def test_nothing_of_a_run_stays_alive_after_it(app: Penstock, style: str) -> None:
    """Completed and failed runs leave neither payload, exception nor local variable, while the worker is idle."""
    watch = Watch()

    async def handle_async(payload: Payload, job: Job) -> int:
        if "suspended" in style:
            await asyncio.sleep(0.001)
        return watch.work(payload, job)

    def handle(payload: Payload, job: Job) -> int:
        return watch.work(payload, job)

    async def handle_batch_async(payloads: list[Payload], jobs: list[Job]) -> list[int]:
        return [watch.work(payload, None) for payload in payloads]

    def handle_batch(payloads: list[Payload], jobs: list[Job]) -> list[int]:
        return [watch.work(payload, None) for payload in payloads]

    if "batch" in style:
        app.listen("q", handle_batch_async if "async" in style else handle_batch, batch_size=2, max_retries=0)
    else:
        app.listen("q", handle_async if "async" in style else handle, max_retries=0)
    await app.queue("q").enqueue_many([Entry({"n": n}) for n in range(6)])
    async with Worker(app), asyncio.timeout(20):
        await eventually(lambda: is_over(app))
        await eventually(lambda: not watch.alive)
    assert len(watch.refs) >= 12


async def is_over(app: Penstock) -> bool:
    counts = await app.queue("q").counts()
    return counts[State.COMPLETED] + counts[State.FAILED] == 6


@pytest.mark.parametrize("error", [StorageUnavailable, StorageError])
async def test_a_reservation_whose_settle_failed_is_not_kept_alive(
    app: Penstock, no_collector: None, monkeypatch: pytest.MonkeyPatch, error: type[StorageError]
) -> None:
    """A reservation that its owner drops after an error of the storage is gone, so that its lease expires."""
    await app.queue("q").enqueue(1)
    [reservation] = await app.queue("q").reserve(1)

    async def refuse(*_: object) -> None:
        raise error("as asked")

    monkeypatch.setattr(app.storage, "settle", refuse)
    with pytest.raises(error):
        await reservation.complete(1)
    monkeypatch.undo()
    kept = weakref.ref(reservation)
    del reservation
    await eventually(lambda: kept() is None)
