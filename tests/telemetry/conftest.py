"""An app in memory, with a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.testing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(clock: Clock, runner: asyncio.Runner) -> Iterator[Penstock]:
    app = Penstock("memory:", clock=clock)
    runner.run(app.open())
    yield app
    runner.run(app.close())
