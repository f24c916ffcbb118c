"""An app on each storage that needs no server, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock
from penstock.testing import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:{tmp_path / 'penstock.db'}"


@pytest.fixture
def app(url: str, clock: Clock, runner: asyncio.Runner) -> Iterator[Penstock]:
    app = Penstock(url, clock=clock)
    runner.run(app.open())
    yield app
    runner.run(app.close())
