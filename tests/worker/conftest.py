"""An app in memory with a clock that moves by hand, and a storage that fails where it is told to."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from penstock import Penstock, StorageUnavailable
from penstock.storage import connect
from penstock.testing import Clock


class Trouble:
    """A storage in front of another: it counts calls, and fails chosen ones before or after the fact."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._plans: dict[str, list[tuple[Exception, bool] | None]] = {}
        self.calls: Counter[str] = Counter()
        self.down = False

    def fail(
        self, verb: str, times: int = 1, error: Exception | None = None, after: bool = False, skip: int = 0
    ) -> None:
        """Calls of a verb fail, but for the first ones; with `after` they are carried out and their answer is lost."""
        plan = (error or StorageUnavailable(f"{verb} is made to fail"), after)
        self._plans.setdefault(verb, []).extend([*[None] * skip, *[plan] * times])

    def __getattr__(self, verb: str) -> Any:
        real = getattr(self._storage, verb)

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[verb] += 1
            if self.down:
                raise StorageUnavailable("down")
            plans = self._plans.get(verb)
            plan = plans.pop(0) if plans else None
            if plan is None:
                return await real(*args, **options)
            error, after = plan
            if after:
                await real(*args, **options)
            raise error

        return call


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trouble(clock: Clock) -> Trouble:
    return Trouble(connect("memory:", clock=clock))


@pytest.fixture
def app(clock: Clock, trouble: Trouble, runner: asyncio.Runner) -> Iterator[Penstock]:
    app = Penstock(storage=trouble, clock=clock)  # type: ignore[arg-type]
    runner.run(app.open())
    yield app
    trouble.down = False
    runner.run(app.close())
