"""Opening of an app: by one event loop at a time, and within a time."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncGenerator

from penstock.errors import StorageUnavailable

__all__ = ["LoopGuard", "opening_within"]


class LoopGuard:
    """The event loop that uses an app. The next one may use it when the last has ended or the app was closed."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        #: The event loop that uses the app now.
        self.loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def enter(self) -> AsyncGenerator[None]:
        """Use the app in the running event loop; inside the block it is opened or closed, one caller at a time."""
        async with self._lock_of(asyncio.get_running_loop()):
            yield

    def leave(self) -> None:
        """Let any event loop use the app next."""
        self.loop = None

    def _lock_of(self, loop: asyncio.AbstractEventLoop) -> asyncio.Lock:
        with self._mutex:
            if self.loop is not loop:
                if self.loop is not None and self.loop.is_running():
                    raise RuntimeError(
                        "another event loop, in another thread, uses this app, and an app belongs to one event loop at "
                        "a time: threads share a penstock.sync.Penstock, or each has an app of its own"
                    )
                self.loop, self._lock = loop, asyncio.Lock()
            return self._lock


@contextlib.asynccontextmanager
async def opening_within(timeout: float | None) -> AsyncGenerator[None]:
    """Raise `StorageUnavailable` if the block, which opens a storage, takes longer than `timeout` seconds."""
    try:
        async with asyncio.timeout(timeout):
            yield
    except TimeoutError as error:
        late = StorageUnavailable(f"the storage could not be opened within {timeout:g} s")
        late.uncertain = False
        raise late from error
