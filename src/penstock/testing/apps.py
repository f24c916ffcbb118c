"""The two faces of an app, and what the kit does with either: async apps are awaited, sync ones answer at once."""

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
    """The async app, whichever face is given."""
    return app.async_app if isinstance(app, SyncPenstock) else app


def resolve_for(app: AnyApp, coroutine: Coroutine[Any, Any, T]) -> Any:
    """What a function of the kit gives back: a coroutine to be awaited, or, for a sync app, its answer."""
    if not isinstance(app, SyncPenstock):
        return coroutine
    try:
        refuse_in_loop("a function of penstock.testing, with a sync app,")
    except RuntimeError:
        coroutine.close()
        raise
    return app.backends.wait(_close_after(app.async_app, coroutine))


async def _close_after(app: Penstock, coroutine: Coroutine[Any, Any, T]) -> T:
    """The async app behind a sync one is nobody's to close but ours, if we opened it."""
    was_open = app.is_open
    try:
        return await coroutine
    finally:
        if not was_open:
            await app.close()


def in_own_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own, in a thread: whatever runs in this one is left alone."""
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(asyncio.run, coroutine).result()


def storages_of(app: AnyApp) -> list[Storage]:
    """The storage objects that an app's calls and its workers go to."""
    found = [async_app_of(app).storage]
    if isinstance(app, SyncPenstock):
        found += [app.backends.loop_app.storage, app.backends.app.storage]
    return list({id(storage): storage for storage in found}.values())


@contextlib.contextmanager
def patched_verbs(storage: Storage, verbs: Mapping[str, Any]) -> Generator[None]:
    """Have verbs of one storage object answered by others for a while."""
    before = {verb: vars(storage)[verb] for verb in verbs if verb in vars(storage)}
    vars(storage).update(verbs)
    try:
        yield
    finally:
        for verb in verbs:
            vars(storage).pop(verb, None)
        vars(storage).update(before)


class AppProxy:
    """An app as a worker sees it, but for what a subclass says otherwise."""

    def __init__(self, app: Penstock) -> None:
        self._app = app

    def __getattr__(self, name: str) -> Any:
        return getattr(self._app, name)


def as_host(proxy: AppProxy) -> AppHost:
    """What stands in for an app has all that a worker needs."""
    return cast("AppHost", proxy)
