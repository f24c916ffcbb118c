"""Helpers of the kit for async and sync apps: async answers are awaited, sync ones returned at once."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar, cast

from penstock.client.app import Penstock
from penstock.host import AppHost
from penstock.storage.base import Storage
from penstock.sync import Penstock as SyncPenstock
from penstock.sync.portal import refuse_in_loop

__all__ = [
    "AnyApp",
    "AppProxy",
    "as_host",
    "async_app_of",
    "in_own_loop",
    "patched_verbs",
    "resolve_for",
    "storages_of",
]

T = TypeVar("T")

AnyApp = Penstock | SyncPenstock


def async_app_of(app: AnyApp) -> Penstock:
    """Return the async app: the given one, or the one behind a sync app."""
    return app.async_app if isinstance(app, SyncPenstock) else app


def resolve_for(app: AnyApp, coroutine: Coroutine[Any, Any, T]) -> Any:
    """Return the coroutine for an async app; for a sync app, run it and return its result."""
    if not isinstance(app, SyncPenstock):
        return coroutine
    try:
        refuse_in_loop("a function of penstock.testing, with a sync app,")
    except RuntimeError:
        coroutine.close()
        raise
    return app.backends.run_on_loop(_close_after(app.async_app, coroutine))


async def _close_after(app: Penstock, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await the coroutine, then close the async app behind a sync one if it was closed before."""
    was_open = app.is_open
    try:
        return await coroutine
    finally:
        if not was_open:
            await app.close()


def in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, in a thread, since this thread's loop may be running."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()


def storages_of(app: AnyApp) -> list[Storage]:
    """Return the storage objects that an app's calls and its workers use."""
    apps = [async_app_of(app)]
    if isinstance(app, SyncPenstock):
        apps += [app.backends.loop_app, app.backends.app]
    found = [storage for each in apps for storage in (each.storage, each.producer_storage)]
    return list({id(storage): storage for storage in found}.values())


@contextlib.contextmanager
def patched_verbs(storage: Storage, verbs: Mapping[str, Any]) -> Generator[None]:
    """Replace verbs of one storage object inside the block."""
    before = {verb: vars(storage)[verb] for verb in verbs if verb in vars(storage)}
    vars(storage).update(verbs)
    try:
        yield
    finally:
        for verb in verbs:
            vars(storage).pop(verb, None)
        vars(storage).update(before)


class AppProxy:
    """A stand-in for an app that forwards everything that a subclass does not override."""

    def __init__(self, app: Penstock) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


def as_host(proxy: AppProxy) -> AppHost:
    """Return the proxy as an `AppHost`: it forwards all that a worker needs."""
    return cast("AppHost", proxy)
