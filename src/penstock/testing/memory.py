"""`on_memory`: an app's storage replaced by one in memory for the length of a test."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator

from penstock.storage import connect_refcounted
from penstock.sync import Penstock as SyncPenstock
from penstock.testing.apps import AnyApp, async_app_of, in_own_loop
from penstock.testing.clock import Clock

__all__ = ["on_memory"]


@contextlib.contextmanager
def on_memory(app: AnyApp, clock: Clock | None = None) -> Generator[Clock]:
    """Let an app that is not open use an empty storage in memory: `with on_memory(app) as clock:`.

    Its handlers, tasks and queues work unchanged; its own storage is not touched. Jobs stay until the
    block ends, even if the app is closed and opened in it. Without a `clock`, a new one stands still at the
    present time. After the block the app has its own storage again.
    """
    if clock is None:
        clock = Clock(time.time())
    async_app = async_app_of(app)
    storage = connect_refcounted("memory:", namespace=async_app.namespace, clock=clock)
    lender = app.backends if isinstance(app, SyncPenstock) else app
    with lender.using_storage(storage, "memory:", clock):
        in_own_loop(storage.open())  # it counts its opens: with this one, closing the app does not delete the jobs
        try:
            yield clock
        finally:
            if async_app.is_open:  # the event loop in which it was opened may be closed
                in_own_loop(storage.close())
            in_own_loop(storage.close())
