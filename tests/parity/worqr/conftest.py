"""An app with the preset `worqr` on each storage, with a clock that moves by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.testing import Clock
from tests.parity.job_queue.places import Place
from tests.support import Backend


@pytest.fixture
def place(backend: Backend, clock: Clock, runner: asyncio.Runner) -> Iterator[Place]:
    """Where apps that see the same jobs can be made."""
    place = Place(backend, "worqr", clock)
    yield place
    runner.run(place.close())


@pytest.fixture
def app(place: Place, runner: asyncio.Runner) -> Penstock:
    """The first app there, open."""
    return runner.run(place.app())
