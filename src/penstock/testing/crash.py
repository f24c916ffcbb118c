"""`crash`: a worker that dies at a chosen call, as a killed process does, and records nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Literal, overload

from penstock.client.app import Penstock
from penstock.storage.base import Claimed, Renewal, Settled, Storage
from penstock.storage.scheduling import DueSchedules, Fired
from penstock.sync import Penstock as SyncPenstock
from penstock.testing.apps import AnyApp, AppProxy, as_host, async_app_of, resolve_for
from penstock.worker import Worker

__all__ = ["crash"]

#: Answers to a worker after its crash: no claims, and every claim lost.
LOST_ANSWERS: dict[str, Callable[[tuple[Any, ...]], Any]] = {
    "claim": lambda args: Claimed([]),
    "settle": lambda args: [Settled(None, lost=True)] * len(args[0]),
    "renew": lambda args: [Renewal(False)] * len(args[1]),
    "reap": lambda args: [],
    "purge": lambda args: 0,
    "report": lambda args: False,
    "beat": lambda args: None,
    "announce": lambda args: None,
    "due": lambda args: DueSchedules([]),
    "fire": lambda args: [Fired(0, stale=True)] * len(args[0]),
    "set_schedule": lambda args: None,
    "drop_schedule": lambda args: False,
}


@overload
def crash(
    app: Penstock, *, before: Literal["settle"] | None = None, after: Literal["claim", "settle"] | None = None
) -> Coroutine[Any, Any, None]: ...


@overload
def crash(
    app: SyncPenstock, *, before: Literal["settle"] | None = None, after: Literal["claim", "settle"] | None = None
) -> None: ...


def crash(
    app: AnyApp, *, before: Literal["settle"] | None = None, after: Literal["claim", "settle"] | None = None
) -> Coroutine[Any, Any, None] | None:
    """Run due jobs by a worker that dies at its first `settle`, as a killed process does.

    `before="settle"` (the default): the handler has run, and its outcome is not recorded.
    `after="claim"`: the jobs are claimed, and no handler has been called. `after="settle"`: the outcome is
    recorded, and the worker gets no answer. Other runs of the worker are cut short at that moment. Its jobs
    stay `running` until their lease expires: advance the clock by `app.lease` seconds, and the next `drain`
    runs them again with `stalls` 1. If the worker never gets to that call, an `AssertionError` is raised.
    """
    if before is not None and after is not None:
        raise ValueError("give before or after, not both")
    verb, late = (after, True) if after is not None else (before or "settle", False)
    if verb not in (("claim", "settle") if late else ("settle",)):
        raise ValueError(f"{'after' if late else 'before'}: a worker cannot be made to die at {verb!r}")
    return resolve_for(app, _crash(async_app_of(app), verb, late))


async def _crash(app: Penstock, verb: str, after: bool) -> None:
    crashing = CrashingApp(app, verb, after)
    worker = Worker(as_host(crashing))
    draining = asyncio.create_task(worker.drain())
    crash_seen = asyncio.create_task(crashing.crashed.wait())
    try:
        await asyncio.wait({draining, crash_seen}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        crash_seen.cancel()
        await worker.stop(grace=0)
        await draining
    if not crashing.crashed.is_set():
        raise AssertionError(f"the worker did not crash, because it never called {verb}: no job was due")


class CrashingApp(AppProxy):
    """An app whose storage is cut off at the crash of its worker."""

    def __init__(self, app: Penstock, verb: str, after: bool) -> None:
        super().__init__(app)
        self.crashed = asyncio.Event()
        self.storage = CrashingStorage(app.storage, self.crashed, verb, after)

    def emit(self, name: str, **about: Any) -> None:
        """Emit an event, unless the worker has crashed."""
        if not self.crashed.is_set():
            self._app.emit(name, **about)

    def blocking_storage(self) -> Storage | None:
        """Return None, so that no lease thread renews the leases after the crash."""
        return None


class CrashingStorage:
    """A storage wrapper that crashes at a chosen call, and from then on answers that every claim is lost."""

    def __init__(self, storage: Storage, crashed: asyncio.Event, verb: str, after: bool) -> None:
        self._storage = storage
        self._crashed = crashed
        self._verb = verb
        self._after = after
        #: Held during a call, so that no other call comes between the one that crashes and the crash.
        self._turn = asyncio.Lock()
        self.opens_claims = False

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._storage, verb)
        lost = LOST_ANSWERS.get(verb)
        if lost is None:
            return real

        async def call(*args: Any) -> Any:
            if verb == self._verb and not self._after:
                self._crashed.set()
            async with self._turn:
                if not self._crashed.is_set():
                    answer = await real(*args)
                    if verb != self._verb or (verb == "claim" and not answer.claims):
                        return answer
                    self._crashed.set()
            return lost(args)

        return call
