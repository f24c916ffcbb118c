"""Schedules with real processes: workers that are killed, two versions of the code, child processes."""

from __future__ import annotations

import signal
from datetime import datetime, timedelta

import pytest

from penstock import Every, ScheduleInfo
from tests.e2e.conftest import Stage, until

#: An app that notes each tick in the log; `{declaration}` declares its schedule, `{fault}` breaks something.
PROGRAM = """
import asyncio, os
from penstock import Cron, Every, Job, Penstock
from penstock.worker import declarations

declarations.LOOK = 0.5
app = Penstock(namespace=os.environ["PENSTOCK_NAMESPACE"])


@app.handler("q"{declaration})
async def note(payload, job: Job):
    with open(os.environ["PENSTOCK_TEST_LOG"], "a", encoding="utf-8") as file:
        file.write(f"tick {{job.tick.nominal.isoformat()}} {{os.getpid()}}\\n")

{fault}
"""

#: The process reports that a tick is due and that it is about to fire it, and goes no further.
NEVER_FIRES = """
async def fire(self, firings):
    with open(os.environ["PENSTOCK_TEST_LOG"], "a", encoding="utf-8") as file:
        file.write(f"firing {os.getpid()}\\n")
    await asyncio.sleep(3600)

type(app.storage).fire = fire
"""


def program(stage: Stage, name: str, declaration: str = "", fault: str = "") -> str:
    """Write the module of an app and return its name for `penstock worker`."""
    text = PROGRAM.replace("{fault}", fault).replace("{declaration}", declaration).replace("{{", "{").replace("}}", "}")
    (stage.directory / f"{name}.py").write_text(text, encoding="utf-8")
    return f"{name}:app"


def ticks(stage: Stage) -> list[datetime]:
    """Return the nominal times in the log, in the order of their runs."""
    return [datetime.fromisoformat(line[1]) for line in stage.lines("tick")]


async def info(stage: Stage) -> ScheduleInfo | None:
    return await stage.app.queue("q").schedules.get("q")


async def test_a_worker_killed_between_due_and_fire_loses_no_tick(stage: Stage) -> None:
    """It is killed when it is about to fire: another worker fires the same tick, once, within seconds."""
    await stage.app.queue("q").schedules.put("q", Every(1), overlap="allow")
    broken = stage.run("-m", "penstock", "worker", program(stage, "broken", fault=NEVER_FIRES))
    await stage.line("firing")
    broken.signal(signal.SIGKILL)
    stage.run("-m", "penstock", "worker", program(stage, "sound"))
    await until(lambda: len(ticks(stage)) >= 5)
    found = ticks(stage)
    assert len(set(found)) == len(found)
    first = min(found)
    assert sorted(found) == [first + timedelta(seconds=number) for number in range(len(found))]
    last = await info(stage)
    assert last is not None
    assert (last.missed, last.skipped, last.dropped) == (0, 0, 0)


@pytest.mark.parametrize("processes", [0, 2])
async def test_every_tick_runs_once_while_workers_are_killed(stage: Stage, processes: int) -> None:
    """Three workers declare a tick of every second; two are killed one after the other: no tick is missed."""
    app = program(stage, "jobs", ", schedule=Every(1), timeout=5")
    workers = [
        stage.run("-m", "penstock", "worker", app, "--processes", str(processes), "--lease", "2") for _ in range(3)
    ]
    for number, worker in enumerate(workers[:2], 1):
        await until(lambda number=number: len(set(ticks(stage))) >= 3 * number)
        worker.children()
        worker.signal_group(signal.SIGKILL)
    await until(lambda: len(set(ticks(stage))) >= 12)
    found = await info(stage)
    assert found is not None
    assert found.fired + found.skipped >= 12
    assert found.missed == 0
    nominal = sorted(set(ticks(stage)))
    assert nominal[-1] - nominal[0] <= timedelta(seconds=len(nominal) - 1 + found.skipped)


async def test_the_declaration_of_the_last_started_live_worker_holds(stage: Stage) -> None:
    """B declares other times after A: they hold while B lives, those of A after B has stopped."""

    async def expression() -> str:
        found = await info(stage)
        return getattr(found and found.when, "expression", "")

    async def is_at(wanted: str) -> bool:
        return await expression() == wanted

    old, new = "0 2 * * *", "0 3 * * *"
    first = stage.run("-m", "penstock", "worker", program(stage, "a", f', schedule=Cron("{old}")'))
    await until(lambda: is_at(old))
    second = stage.run("-m", "penstock", "worker", program(stage, "b", f', schedule=Cron("{new}")'))
    await until(lambda: is_at(new))
    second.signal(signal.SIGTERM)
    assert await second.ended() == 0
    await until(lambda: is_at(old))
    assert first.process.poll() is None
