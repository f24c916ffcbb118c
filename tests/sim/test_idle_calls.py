"""The calls of an idle worker, counted in virtual time against the section `idle` of `budget.toml`."""

from __future__ import annotations

import asyncio
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from penstock import Cron, Penstock
from penstock.testing import simulate
from penstock.testing.simulation.history import History

BUDGET = tomllib.loads((Path(__file__).parents[1] / "conformance" / "budget.toml").read_text("utf-8"))["idle"]
#: How long (virtual seconds) the worker is idle before the calls are counted, and for how long they are.
BEFORE, COUNTED = 20.0, 120.0
#: A look at hints is not a call to a server: a worker waits for them with BLPOP, which is counted with its claim.
LOCAL = frozenset({"look"})


@pytest.mark.parametrize("row", BUDGET)
def test_an_idle_worker_makes_the_calls_of_the_budget(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No call more than in the budget, which is at most one command a second, with 1000 schedules and without any."""
    calls: list[tuple[float, str]] = []
    record = History.call

    def note(self: History, request: Any, answer: Any) -> None:
        if request.node.name.startswith("worker") and request.verb not in LOCAL:
            calls.append((self._now(), request.verb))
        record(self, request, answer)

    monkeypatch.setattr(History, "call", note)
    app = Penstock("memory:")

    @app.handler("work")
    async def work(payload: Any) -> None: ...

    async def scenario() -> None:
        schedules = app.queue("work").schedules
        for number in range(1000 if row == "1000 schedules" else 0):
            await schedules.put(f"s{number}", Cron("@yearly"))
        await asyncio.sleep(BEFORE + COUNTED)

    report = simulate(app, scenario, seed=1, faults=[], workers=1, seconds=BEFORE + COUNTED + 60)
    begin = report.seconds - COUNTED - 10
    found = Counter(verb for at, verb in calls if begin < at <= begin + COUNTED)
    assert found.keys() <= BUDGET[row].keys()
    assert not {verb: count for verb, count in found.items() if count > BUDGET[row][verb]}
    assert found["claim"] > 0
    assert commands_of(BUDGET[row]) <= COUNTED


def commands_of(calls: dict[str, int]) -> float:
    """Return the commands of these calls on Redis, where a call of a script is one command.

    A claim takes BLPOP and the script; of the calls of `record_stats` in a minute one samples the queues, with
    `SMEMBERS`, `sample` and `add_sample`.
    """
    return sum(calls.values()) + calls["claim"] + 3 * COUNTED / 60
