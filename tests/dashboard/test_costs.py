"""Costs of pages in commands and statements: within a recorded budget, and the same with few jobs and with many."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from bench.dashboard import ids_of, pages_of
from bench.many_jobs import add_schedules, fill
from penstock import Penstock
from penstock.dashboard import Dashboard
from penstock.dashboard import reader as reader_module
from tests.conformance.test_budget import BUDGETS, exceeds, read_commands
from tests.dashboard.conftest import Site, who
from tests.support import Backend, RedisBackend, forget_all

#: Few jobs, with which every page is full; and many.
FEW, MANY = 4_000, 20_000

#: The page that looks at 2 000 jobs, state by state.
WALKS = ("jobs by payload",)

#: Instructions of SQLite's machine between two counts.
STEP = 100

#: Requests of a page on SQLite.
TRIES = 3

Counts = dict[str, dict[str, int]]


@asynccontextmanager
async def site_of(backend: Backend, count: int) -> AsyncGenerator[Site]:
    """Yield a dashboard on a storage with many jobs, whose reader has read once and reads no more by itself."""
    async with Penstock(storage=backend.build()) as filling:  # it may emit events later than it answers
        await fill(filling.storage, count)
        await add_schedules(filling)
    app = Penstock(storage=backend.build())
    async with app:
        site = Site(app, Dashboard(app, auth=who))
        await site.get("/")
        yield site
        await site.client.aclose()
        await site.dashboard.close()
        await forget_all(app.storage)


async def ask(site: Site, name: str, path: str) -> None:
    """Request a page, or read all queues as the reader does."""
    if name == "reading":
        await site.reading()
    else:
        answer = await site.get(path)
        assert answer.status_code == 200, (path, answer.text)


async def count_commands(site: Site, backend: RedisBackend, pages: dict[str, str]) -> Counts:
    """Return the calls and commands of each page."""
    found: Counts = {}
    with backend.clients()[0] as client:
        for name, path in pages.items():
            await ask(site, name, path)  # every script is known to the server
            client.config_resetstat()
            await ask(site, name, path)
            found[name] = read_commands(client)
    return found


async def count_statements(site: Site, pages: dict[str, str]) -> Counts:
    """Return the statements of each page, and how often the database ran `STEP` instructions."""
    engine: Any = site.app.storage.engine  # type: ignore[attr-defined]
    connection: sqlite3.Connection = engine.connection()
    ran: list[str] = []
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    async def count(name: str, path: str) -> dict[str, int]:
        nonlocal steps
        ran.clear()
        steps = 0
        connection.set_trace_callback(ran.append)
        connection.set_progress_handler(step, STEP)
        await ask(site, name, path)
        connection.set_trace_callback(None)
        connection.set_progress_handler(None, STEP)
        return {"statements": len(ran), "steps": steps}

    found: Counts = {}
    for name, path in pages.items():
        await ask(site, name, path)
        # Concurrent reads share a transaction if they come before it begins, so the fewest statements count.
        found[name] = min([await count(name, path) for _ in range(TRIES)], key=lambda each: each["statements"])
    return found


async def measure(backend: Backend, count: int) -> Counts:
    """Return the costs of all pages on a storage with this many jobs."""
    async with site_of(backend, count) as site:
        pages = {**pages_of(await ids_of(site.app.storage)), "reading": ""}
        if isinstance(backend, RedisBackend):
            return await count_commands(site, backend, pages)
        return await count_statements(site, pages)


@pytest.mark.only("redis", "sqlite")
async def test_a_page_costs_as_much_with_many_jobs_as_with_few(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same calls, commands and statements, within the budget of the page; no page scans a table."""
    for name in ("INTERVAL", "MAX_PAUSE"):  # no reading beside the requests
        monkeypatch.setattr(reader_module, name, 3600.0)
    few, many = await measure(backend, FEW), await measure(backend, MANY)
    budgets = BUDGETS["redis_pages" if isinstance(backend, RedisBackend) else "sqlite_pages"]
    assert budgets.keys() == few.keys()
    for name, budget in budgets.items():
        steps = few[name].pop("steps", 0), many[name].pop("steps", 0)
        assert steps[1] <= steps[0] * 1.2 + 200, (name, steps)
        if name in WALKS:  # with many jobs, a walk ends in an earlier state
            assert not exceeds(many[name], few[name]), (name, few[name], many[name])
        else:
            assert few[name] == many[name], (name, few[name], many[name])
        assert not exceeds(many[name], budget), (name, many[name])
