"""Tests of the checks of limits and schedules with bugs planted in a real storage, each found in a small run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checker import check
from chaos.jobs import LimitedCode, build
from chaos.log import Log, read_all
from chaos.producer import Producer
from chaos.run import record_stored_jobs
from chaos.shared_number import EnqueueLimit
from chaos.stored_settings import record_stored_schedules, stop_schedules, stored_schedules
from penstock import Penstock, Worker
from penstock.model.limit import Rule
from penstock.model.schedule_settings import ScheduleSettings
from penstock.storage.limiting import Scope
from penstock.storage.scheduling import DueSchedules, Fired, Firing, ScheduleRecord
from tests.chaos.test_planted import LEASE, TIMEOUT, WAITING, PlantBug

KINDS = ["cap", "caps", "order", "rate", "cost", "pack", "fam", "swap", "set_limit"]
SCHEDULES = 12


async def wait_until(condition: Any) -> None:
    """Wait until a condition holds; with a bug in the storage it may never do, so not for ever."""
    until = asyncio.get_running_loop().time() + TIMEOUT
    while asyncio.get_running_loop().time() < until:
        if await condition():
            return
        await asyncio.sleep(0.05)


async def has_ticked(app: Penstock) -> bool:
    """Return whether each schedule has decided three ticks."""
    counts = [each.fired + each.skipped + each.missed async for each in stored_schedules(app)]
    return bool(counts) and min(counts) >= 3


async def is_finished(app: Penstock) -> bool:
    counts = [await app.queue(queue).counts() for queue in await app.queues()]
    return not any(each[state] for each in counts for state in WAITING)


async def run(folder: Path, plant_bug: PlantBug | None, jobs: int = 150) -> list[str]:
    """Run limited jobs and schedules on two workers in this process; return the kinds of violations found."""
    log = Log(folder, "runner")
    limit = EnqueueLimit(folder / "limit")
    limit.allowed = jobs + 1
    options = {
        "seed": "planted", "name": "p", "first": 0, "count": jobs, "kinds": KINDS, "heavy": 0.0, "producers": 1,
        "limit_file": str(folder / "limit"), "schedules": SCHEDULES,
    }  # fmt: skip
    async with build(f"sqlite:{folder / 'jobs.db'}", log, plant_bug, LimitedCode(0, SCHEDULES)) as app:
        workers = [Worker(app, id=f"w{i}", lease=LEASE) for i in range(2)]
        await asyncio.gather(*(worker.__aenter__() for worker in workers))
        await Producer(app, log, options).run()
        await wait_until(lambda: has_ticked(app))
        await stop_schedules(app)
        await wait_until(lambda: is_finished(app))
        await asyncio.gather(*(worker.stop(grace=5) for worker in workers))
        await record_stored_jobs(app, log.write)
        await record_stored_schedules(app, log.write)
        log.write("leftovers", count=0, what=[])
    log.close()
    limit.close()
    return sorted({violation.kind for violation in check(read_all(folder))})


async def test_without_a_bug_nothing_is_found(tmp_path: Path) -> None:
    """The same run on the unchanged storage has no violation."""
    assert await run(tmp_path, None) == []


def ignore_limits(storage: Any) -> None:
    """Make set_limit acknowledge a rule without storing it."""
    set_limit = storage.set_limit

    async def planted(scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        return await set_limit(scope, None if rule is None else Rule(), settings, version)

    storage.set_limit = planted


def charge_nothing(storage: Any) -> None:
    """Make set_limit store rules without their rates."""
    set_limit = storage.set_limit

    async def planted(scope: Scope, rule: Rule | None, settings: bytes, version: int) -> int | None:
        return await set_limit(scope, None if rule is None else replace(rule, step_us=0), settings, version)

    storage.set_limit = planted


def fire_without_the_version(storage: Any) -> None:
    """Make fire carry out firings that were decided from an older version, and due give each answer twice."""
    fire, due = storage.fire, storage.due
    answers_given: list[DueSchedules] = []

    async def firing_all(firings: Sequence[Firing]) -> list[Fired]:
        answers: list[Fired] = []
        for firing in firings:
            record = await storage.get_schedule(firing.queue, firing.name)
            answers += await fire([firing if record is None else replace(firing, version=record.version)])
        return answers

    async def giving_twice(queues: Sequence[str], worker: str) -> DueSchedules:
        if answers_given:
            return answers_given.pop()
        answer = await due(queues, worker)
        if answer.schedules:
            answers_given.append(answer)
        return answer

    storage.fire, storage.due = firing_all, giving_twice


def lose_ticks(storage: Any) -> None:
    """Make fire move the cursor and count the ticks without putting their jobs."""
    fire = storage.fire

    async def planted(firings: Sequence[Firing]) -> list[Fired]:
        answers = await fire([replace(firing, ticks=()) for firing in firings])
        return [
            answer
            if answer.stale
            else replace(answer, fired=len(firing.ticks), ids=tuple(t.job.id for t in firing.ticks))
            for firing, answer in zip(firings, answers, strict=True)
        ]

    storage.fire = planted


def forget_ticks(storage: Any) -> None:
    """Make fire leave out the first of the due ticks of a schedule, as if it had been decided before."""
    fire = storage.fire

    async def planted(firings: Sequence[Firing]) -> list[Fired]:
        return await fire([replace(firing, ticks=firing.ticks[1:]) for firing in firings])

    storage.fire = planted


def fire_early(storage: Any) -> None:
    """Make the storage answer with a time that is a second ahead, and with the schedules that are due by then."""
    due, schedules = storage.due, storage.schedules

    async def planted(queues: Sequence[str], worker: str) -> Any:
        answer = await due(queues, worker)
        now = await storage.time()
        pages = [await schedules(queue) for queue in ("tick", "tickcancel")]
        found = [each for page in pages for each in page.schedules if each.next and now < each.next <= now + 1000]
        return replace(answer, schedules=found, look_at=now + 1000) if found else answer

    storage.due = planted


def ignore_schedule_pauses(storage: Any) -> None:
    """Make set_schedule acknowledge a pause, and fire go on from the version before."""
    set_schedule = storage.set_schedule

    async def planted(record: ScheduleRecord, version: int, firing: Firing | None = None) -> int | None:
        settings = ScheduleSettings.decode(record.spec)
        if settings.paused is None:
            return await set_schedule(record, version, firing)
        going_on = replace(settings, paused=None)
        next = going_on.next_after(record.cursor)
        return await set_schedule(replace(record, spec=going_on.encode(), next=next), version, firing)

    storage.set_schedule = planted


@pytest.mark.parametrize(
    ("plant_bug", "kind"),
    [
        (ignore_limits, "over_limit"), (charge_nothing, "over_rate"), (fire_without_the_version, "duplicated_tick"),
        (lose_ticks, "uncounted_tick"), (lose_ticks, "lost"), (forget_ticks, "uncounted_tick"),
        (fire_early, "wrong_tick"), (ignore_schedule_pauses, "wrong_tick"),
    ],
)  # fmt: skip
async def test_a_planted_bug_is_found(tmp_path: Path, plant_bug: PlantBug, kind: str) -> None:
    """The history of a run on a storage with one bug shows the violation that the bug causes."""
    assert kind in await run(tmp_path, plant_bug)
