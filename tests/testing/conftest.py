"""A small app with handlers, whose own storage no test may touch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import Job, Penstock, Retry, sync
from penstock.testing import Clock, on_memory


class Shop:
    """An app, and the record of what its handlers did."""

    def __init__(self, app: Penstock) -> None:
        self.app = app
        self.charged: list[str] = []
        app.listen("charge", self.charge, max_retries=3)
        app.listen("receipts", self.receipt)

    async def charge(self, name: str, job: Job) -> str:
        if name == "patient" and job.attempt == 1:
            raise Retry(delay=60)
        if name == "poor":
            raise ConnectionError("the bank is closed")
        self.charged.append(f"{name} {job.stalls}")
        job.then("receipts", name, id=name)
        return f"charged {name}"

    def receipt(self, name: str) -> None:
        self.charged.append(f"receipt for {name}")


@pytest.fixture
def shop() -> Shop:
    return Shop(Penstock("sqlite:/nowhere/at/all/penstock.db"))


@pytest.fixture
def clock(shop: Shop) -> Iterator[Clock]:
    """The clock of the shop's app, which is in memory for the test."""
    with on_memory(shop.app) as clock:
        yield clock


@pytest.fixture
def plain() -> sync.Penstock:
    """A sync app with one handler."""
    app = sync.Penstock("sqlite:/nowhere/at/all/penstock.db")
    app.listen("q", double)
    return app


@pytest.fixture
def plain_clock(plain: sync.Penstock) -> Iterator[Clock]:
    with on_memory(plain) as clock:
        yield clock


def double(number: int) -> int:
    return 2 * number
