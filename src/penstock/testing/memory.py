"""An app that has a storage of its own, moved to memory for the length of a test."""

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
    """Have an app that is not open use an empty storage in memory: `with on_memory(app) as clock:`.

    Its handlers, tasks and queues work as they are; what it is connected to otherwise is not touched.
    Jobs stay until the block ends, even if the app is closed and opened in it. The clock stands still
    at the present unless one is given. Afterwards the app is as it was before.
    """
    if clock is None:
        clock = Clock(time.time())
    behind = async_app_of(app)
    storage = connect_refcounted("memory:", namespace=behind.namespace, clock=clock)
    lender = app.backends if isinstance(app, SyncPenstock) else app
    with lender.using_storage(storage, "memory:", clock):
        in_own_loop(storage.open())  # and count, so that nobody else can be the last to close it
        try:
            yield clock
        finally:
            if behind.is_open:  # in an event loop that may be gone
                in_own_loop(storage.close())
            in_own_loop(storage.close())
