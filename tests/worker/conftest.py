"""An app in memory with a clock that the test moves, on a storage that fails where the test asks for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.storage import connect
from penstock.testing import Clock, FaultyStorage


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trouble(clock: Clock) -> FaultyStorage:
    return FaultyStorage(connect("memory:", clock=clock))


@pytest.fixture
def app(clock: Clock, trouble: FaultyStorage, runner: asyncio.Runner) -> Iterator[Penstock]:
    app = Penstock(storage=trouble, clock=clock)  # type: ignore[arg-type]
    runner.run(app.open())
    yield app
    trouble.down = False
    runner.run(app.close())
