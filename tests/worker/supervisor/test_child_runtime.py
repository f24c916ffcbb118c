"""The runtime of a child process, started in this process on a claim table of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from penstock import Penstock
from penstock.worker.supervisor.child_runtime import ChildRuntime
from penstock.worker.supervisor.claim_table import ClaimTable
from penstock.worker.supervisor.config import ChildConfig


@pytest.fixture
def table() -> Iterator[ClaimTable]:
    table = ClaimTable(slots=8)
    yield table
    table.close()


async def test_a_child_starts_no_lease_thread(app: Penstock, table: ClaimTable) -> None:
    """The supervisor renews the leases of its children, so a child that starts adds no thread to renew them."""
    app.listen("q", lambda payload: None)
    config = ChildConfig(
        source="", modules=(), serves=("q",), worker="w", queues=None, capacity=1, lease=10.0, slots=1
    )  # fmt: skip
    before = set(threading.enumerate())
    runtime = ChildRuntime(app, config, app.handlers, table, lambda message: None)
    await runtime.start()
    try:
        added = {thread.name for thread in set(threading.enumerate()) - before}
        assert "penstock lease renewal" not in added
        assert runtime._lease_thread is None
    finally:
        await runtime.finish()
