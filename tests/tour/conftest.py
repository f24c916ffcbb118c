"""Fixtures of the tour: an open app on each storage in turn, and its clock, which a test moves."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock import Penstock
from penstock.testing import Clock
from tests.support import Backend, forget_all


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def app(backend: Backend, clock: Clock, no_leaks: None, runner: asyncio.Runner) -> Iterator[Penstock]:
    """An app as `async with Penstock(url, clock=clock) as app` gives it; afterwards nothing may be left behind."""
    app = Penstock(storage=backend.build(clock), clock=clock)  # type: ignore[arg-type]
    runner.run(app.open())
    yield app
    for queue in {*app.handlers, *app._queues}:
        runner.run(app.storage.delete_queue(queue, settings=True))
    runner.run(forget_all(app.storage))
    runner.run(app.close())
    assert backend.leftovers() == []


@pytest.fixture
def run(tmp_path: Path) -> Callable[[str], Awaitable[int]]:
    """Runs a `penstock` command in the test's directory and gives its exit code."""

    async def run(command: str) -> int:
        program, *arguments = command.split()
        assert program == "penstock"
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "penstock", *arguments, cwd=tmp_path, env=environment
        )  # fmt: skip
        return await process.wait()

    environment = {**os.environ, "PYTHONPATH": str(Path(penstock.__file__).parents[1])}
    return run
