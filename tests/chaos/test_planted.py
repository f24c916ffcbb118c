"""Tests of the checker with bugs planted in a real storage: it finds each of them in the history of a small run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.checker import check
from chaos.jobs import build
from chaos.log import Log, read_all
from chaos.producer import Producer
from chaos.run import record_stored_jobs
from chaos.shared_number import EnqueueLimit
from penstock import State, Worker
from penstock.model.job import NewJob
from penstock.storage.base import Complete, Fail, Put, PutStatus, Renewal, Settled, Settlement

#: The kinds of jobs that need no child processes.
KINDS = ["plain", "brief", "sync", "lane", "lanes", "bunch", "single", "call", "cancel", "later"]
WAITING = (State.QUEUED, State.SCHEDULED, State.RETRYING, State.RUNNING, State.BLOCKED)
LEASE = 0.4
#: Seconds after which the run stops waiting: with a bug in the storage, jobs may never finish.
TIMEOUT = 6

PlantBug = Callable[[Any], None]


async def run(
    folder: Path, plant_bug: PlantBug | None, *, kinds: Sequence[str] = KINDS, capacity: int = 50, jobs: int = 150
) -> list[str]:
    """Run jobs on two workers in this process; return the kinds of violations found."""
    log = Log(folder, "all")
    limit = EnqueueLimit(folder / "limit")
    limit.allowed = jobs + 1
    options = {
        "seed": "planted", "name": "p", "first": 0, "count": jobs, "kinds": list(kinds), "heavy": 0.0, "producers": 1,
        "limit_file": str(folder / "limit"),
    }  # fmt: skip
    async with build(f"sqlite:{folder / 'jobs.db'}", log, plant_bug) as app:
        workers = [Worker(app, id=f"w{i}", lease=LEASE, capacity=capacity) for i in range(2)]
        await asyncio.gather(*(worker.__aenter__() for worker in workers))
        await Producer(app, log, options).run()
        until = asyncio.get_running_loop().time() + TIMEOUT
        while asyncio.get_running_loop().time() < until:
            counts = [await app.queue(queue).counts() for queue in await app.queues()]
            if not any(each[state] for each in counts for state in WAITING):
                break
            await asyncio.sleep(0.05)
        await asyncio.gather(*(worker.stop(grace=5) for worker in workers))
        await record_stored_jobs(app, log.write)
        log.write("leftovers", count=0, what=[])
    log.close()
    limit.close()
    return sorted({violation.kind for violation in check(read_all(folder))})


async def test_without_a_bug_nothing_is_found(tmp_path: Path) -> None:
    """The same run on the unchanged storage has no violation."""
    assert await run(tmp_path, None) == []


def lose_jobs(storage: Any) -> None:
    """Make put acknowledge one job in twenty without storing it."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        kept = [job for i, job in enumerate(jobs) if i % 20 != 19]
        answers = iter(await put(kept))
        return [
            Put(PutStatus.QUEUED, State.QUEUED) if i % 20 == 19 else next(answers) for i in range(len(jobs))
        ]  # fmt: skip

    storage.put = planted


def reverse_groups(storage: Any) -> None:
    """Make put store the jobs of a group in the wrong order."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        if not all(job.group for job in jobs):
            return await put(jobs)
        return (await put(list(reversed(jobs))))[::-1]

    storage.put = planted


def ignore_delays(storage: Any) -> None:
    """Make put store delayed jobs as due now."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        return await put([replace(job, delay=None) for job in jobs])

    storage.put = planted


def lose_settlements(storage: Any) -> None:
    """Make settle acknowledge one completion in ten without recording it, so that the job runs again."""
    settle, count = storage.settle, 0

    async def planted(settlements: Sequence[Settlement]) -> list[Settled]:
        nonlocal count
        answers: list[Settled] = []
        for each in settlements:
            count += 1
            forget = count % 10 == 0 and isinstance(each.resolution, Complete) and each.queue == "plain"
            answers += [Settled(State.COMPLETED)] if forget else await settle([each])
        return answers

    storage.settle = planted


def accept_stale_tokens(storage: Any) -> None:
    """Make settle record a run that has lost its job, as if it had the current token."""
    settle, claim, newest = storage.settle, storage.claim, {}

    async def claiming(*args: Any) -> Any:
        answer = await claim(*args)
        newest.update({(each.queue, each.id): each.token for each in answer.claims})
        return answer

    async def planted(settlements: Sequence[Settlement]) -> list[Settled]:
        return await settle([replace(each, token=newest[each.queue, each.id]) for each in settlements])

    storage.claim, storage.settle = claiming, planted
    renew_nothing(storage)


def renew_nothing(storage: Any) -> None:
    """Make renew grant every lease without extending it, and reap expired ones at once."""

    async def planted(worker: str, held: Sequence[Any], lease: int) -> list[Renewal]:
        await storage.reap(list({each.queue for each in held}))
        return [Renewal(True)] * len(held)

    storage.renew = planted


def drop_fail_jobs(storage: Any) -> None:
    """Make settle fail jobs without putting their fail jobs."""
    settle = storage.settle

    async def planted(settlements: Sequence[Settlement]) -> list[Settled]:
        without_fail_jobs = [
            replace(s, resolution=replace(s.resolution, then=())) if isinstance(s.resolution, Fail) else s
            for s in settlements
        ]
        return await settle(without_fail_jobs)

    storage.settle = planted


def ignore_pauses(storage: Any) -> None:
    """Make set_pause acknowledge a pause without pausing the queue."""

    async def planted(queue: str, paused: bool, *more: Any, **options: Any) -> bool:
        return True

    storage.set_pause = planted


@pytest.mark.parametrize(
    ("plant_bug", "kind"),
    [
        (lose_jobs, "lost"), (reverse_groups, "out_of_order"), (ignore_delays, "early"),
        (lose_settlements, "duplicated"), (accept_stale_tokens, "stale"), (renew_nothing, "overlapped"),
        (drop_fail_jobs, "failure_not_handled"),
    ],
)  # fmt: skip
async def test_a_planted_bug_is_found(tmp_path: Path, plant_bug: PlantBug, kind: str) -> None:
    """The history of a run on a storage with one bug shows the violation that the bug causes."""
    assert kind in await run(tmp_path, plant_bug)


async def test_a_storage_that_ignores_pauses_is_found(tmp_path: Path) -> None:
    """A storage that grants claims in a paused queue is reported as ran_while_paused."""
    assert "ran_while_paused" in await run(tmp_path, ignore_pauses, kinds=["gate"], jobs=30)


async def test_too_much_capacity_is_found(tmp_path: Path) -> None:
    """A worker with a capacity of 500 units instead of 100 is reported as over_capacity."""
    assert "over_capacity" in await run(tmp_path, None, kinds=["sync"], capacity=500)
