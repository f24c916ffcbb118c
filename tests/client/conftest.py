"""An app on each storage, with a clock that moves by hand; afterwards nothing may be left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.testing import Clock
from tests.support import Backend, forget_all


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(backend: Backend, clock: Clock, no_leaks: None, runner: asyncio.Runner) -> Iterator[Penstock]:
    app = Penstock(storage=backend.build(clock), clock=clock)  # type: ignore[arg-type]
    runner.run(app.open())
    yield app
    runner.run(app.open())
    runner.run(forget_all(app.storage))
    runner.run(app.close())
    assert backend.leftovers() == []
