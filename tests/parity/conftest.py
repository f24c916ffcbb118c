"""Fixtures of the parity tests: a storage on a clock that tests move, and apps with a preset on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from penstock import Penstock
from penstock.storage.base import Storage
from penstock.testing import Clock

NewApp = Callable[[str], Penstock]


@pytest.fixture
def clock() -> Clock:
    """The storage's clock, which only the test moves."""
    return Clock()


@pytest.fixture
def new_app(storage: Storage, clock: Clock, runner: asyncio.Runner) -> Iterator[NewApp]:
    """Open an app with a preset on the storage under test; all apps of a test share it, as processes would."""
    apps: list[Penstock] = []

    def new(preset: str) -> Penstock:
        app = Penstock(storage=storage, clock=clock, preset=preset)
        apps.append(app)
        if not runner.get_loop().is_running():
            runner.run(app.open())
        return app

    yield new
    for app in apps:
        runner.run(app.close())
    runner.run(storage.open())  # the apps have closed it, and it is looked at once more
