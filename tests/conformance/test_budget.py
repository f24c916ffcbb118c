"""Costs of the storage's verbs in commands and statements, against a recorded budget.

They are counted, so a slower verb is noticed without a clock. The budgets are in budget.toml: a change that
needs more raises them there, and one that needs less lowers them.
"""

from __future__ import annotations

import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.storage.base import Request, Storage
from tests.support import LEASE, Backend, RedisBackend, SqliteBackend, claim_all, complete, held, new, put1

pytestmark = pytest.mark.beyond_model

BUDGETS: dict[str, dict[str, dict[str, int]]] = tomllib.loads(Path(__file__).with_name("budget.toml").read_text())
WORK = list(BUDGETS["redis"])


async def do_work(work: str, storage: Storage, begin: Callable[[], object]) -> None:
    """Prepare, call `begin` to start the counting, and do the work."""
    await put1(storage, "q", "first")  # every script is known to the server, and every statement prepared
    first = await claim_all(storage)
    await storage.renew("w", [held(claim) for claim in first], LEASE)
    await storage.settle([complete(claim) for claim in first])
    names = [f"j{i}" for i in range(1 if work.endswith("one") else 100)]
    fresh = [new("q", id, fresh=True) for id in names]
    if work.startswith("put"):
        jobs = fresh
        if work.endswith("ids"):
            jobs = [new("q", id) for id in names]
        elif work.endswith("groups"):
            jobs = [new("q", id, group=f"g{i % 10}") for i, id in enumerate(names)]
        begin()
        await (storage.put(jobs, 1000) if "bounded" in work else storage.put(jobs))
        return
    if work.endswith("lanes"):
        fresh = [new("q", id, group=id, fresh=True) for id in names]
    if work != "claim nothing":
        await storage.put(fresh)
    if work.startswith("claim"):
        begin()
    claims = (await storage.claim([Request("q", 100)], "w", LEASE, "t")).claims
    if work == "renew 100":
        begin()
        await storage.renew("w", [held(claim) for claim in claims], LEASE)
    elif "settle" in work:
        if work.startswith("settle"):
            begin()
        await storage.settle([complete(claim) for claim in claims])


@pytest.mark.only("redis", "valkey")
@pytest.mark.parametrize("work", WORK)
async def test_a_verb_sends_no_more_than_its_budget(work: str, storage: Storage, backend: Backend) -> None:
    """On Redis, the calls of a verb and the commands of its scripts stay within the recorded budget."""
    assert isinstance(backend, RedisBackend)
    with backend.clients()[0] as client:
        await do_work(work, storage, client.config_resetstat)
        stats: dict[str, dict[str, int]] = client.info("commandstats")  # type: ignore[assignment]
    counts = {name.removeprefix("cmdstat_"): stat["calls"] for name, stat in stats.items()}
    calls = counts.pop("evalsha", 0) + counts.pop("eval", 0)
    commands = sum(n for name, n in counts.items() if not name.startswith(("config", "info", "client", "script")))
    budget = BUDGETS["redis"][work]
    assert calls <= budget["calls"], f"{work}: {calls} calls"
    assert commands <= budget["commands"], f"{work}: {commands} commands, {counts}"


@pytest.mark.only("sqlite")
@pytest.mark.parametrize("work", WORK)
async def test_a_verb_runs_no_more_than_its_budget(work: str, storage: Storage, backend: Backend) -> None:
    """On SQLite, the statements and commits of a verb stay within the recorded budget."""
    assert isinstance(backend, SqliteBackend)
    ran: list[str] = []
    engine: Any = storage.engine  # type: ignore[attr-defined]
    connection: sqlite3.Connection = engine.connection()

    def begin() -> None:
        connection.set_trace_callback(ran.append)

    await do_work(work, storage, begin)
    connection.set_trace_callback(None)
    budget = BUDGETS["sqlite"][work]
    commits = sum(1 for statement in ran if statement == "COMMIT")
    assert commits <= budget["commits"], f"{work}: {commits} commits"
    assert len(ran) <= budget["statements"], f"{work}: {len(ran)} statements: {ran}"
