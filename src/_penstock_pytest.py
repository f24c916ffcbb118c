"""pytest plugin with fixtures for an app in memory and its clock.

pytest loads it in every run where Penstock is installed. It is outside of the package and imports nothing of it
until a test uses a fixture, so that other projects' test runs do not load Penstock.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock import Penstock
    from penstock.sync import Penstock as SyncPenstock
    from penstock.testing import Clock


@pytest.fixture
def penstock_clock() -> Clock:
    """The clock of `penstock_app`: it stands still at the present time until the test moves it."""
    from penstock.testing import Clock

    return Clock(time.time())


@pytest.fixture
def penstock_sync_app(penstock_clock: Clock) -> Iterator[SyncPenstock]:
    """`penstock_app` without `await`: the same handlers, the same jobs."""
    from penstock.sync import Penstock
    from penstock.testing import on_memory

    app = Penstock("memory:")
    with on_memory(app, penstock_clock):
        yield app


@pytest.fixture
def penstock_app(penstock_sync_app: SyncPenstock) -> Penstock:
    """An empty app in memory, on `penstock_clock`. It opens itself in the event loop that first uses it."""
    return penstock_sync_app.async_app
