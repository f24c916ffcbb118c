"""An app with the preset `job_queue` on each storage, with a clock that tests move."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.testing import Clock
from tests.parity.job_queue.app_factory import AppFactory
from tests.support import Backend


@pytest.fixture
def factory(backend: Backend, clock: Clock, runner: asyncio.Runner) -> Iterator[AppFactory]:
    """A factory of apps that share one storage."""
    factory = AppFactory(backend, "job_queue", clock)
    yield factory
    runner.run(factory.close())


@pytest.fixture
def app(factory: AppFactory, runner: asyncio.Runner) -> Penstock:
    """The first app of the factory, open."""
    return runner.run(factory.app())
