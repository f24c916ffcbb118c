"""Bugs planted in a real storage under real workers: the checker finds each of them in what the run wrote down."""

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
from chaos.pace import Pace
from chaos.producer import Producer
from chaos.run import look
from penstock import State, Worker
from penstock.model.job import NewJob
from penstock.storage.base import Complete, Fail, Put, PutStatus, Renewal, Settled, Settlement

#: Everything that needs no processes of its own.
KINDS = ["plain", "brief", "sync", "lane", "lanes", "bunch", "single", "call", "cancel", "later"]
WAITING = (State.QUEUED, State.SCHEDULED, State.RETRYING, State.RUNNING, State.BLOCKED)
LEASE = 0.4
#: A storage with a bug may never get done (seconds).
PATIENCE = 6

Plant = Callable[[Any], None]


async def run(
    folder: Path, plant: Plant | None, *, kinds: Sequence[str] = KINDS, capacity: int = 50, jobs: int = 150
) -> list[str]:
    """A small run in this process, with two workers that share its capacity; the kinds of violations found."""
    log = Log(folder, "all")
    pace = Pace(folder / "pace")
    pace.allowed = jobs + 1
    options = {
        "seed": "planted", "name": "p", "first": 0, "count": jobs, "kinds": list(kinds), "heavy": 0.0, "producers": 1,
        "pace": str(folder / "pace"),
    }  # fmt: skip
    async with build(f"sqlite:{folder / 'jobs.db'}", log, plant) as app:
        workers = [Worker(app, id=f"w{i}", lease=LEASE, capacity=capacity) for i in range(2)]
        await asyncio.gather(*(worker.__aenter__() for worker in workers))
        await Producer(app, log, options).run()
        until = asyncio.get_running_loop().time() + PATIENCE
        while asyncio.get_running_loop().time() < until:
            counts = [await app.queue(queue).counts() for queue in await app.queues()]
            if not any(each[state] for each in counts for state in WAITING):
                break
            await asyncio.sleep(0.05)
        await asyncio.gather(*(worker.stop(grace=5) for worker in workers))
        await look(app, log.write)
        log.write("left", count=0, what=[])
    log.close()
    pace.close()
    return sorted({violation.kind for violation in check(read_all(folder))})


async def test_without_a_bug_nothing_is_found(tmp_path: Path) -> None:
    """The same run on the storage as it is violates nothing."""
    assert await run(tmp_path, None) == []


def puts_less(storage: Any) -> None:
    """One job in twenty is acknowledged and not stored."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        kept = [job for i, job in enumerate(jobs) if i % 20 != 19]
        answers = iter(await put(kept))
        return [
            Put(PutStatus.QUEUED, State.QUEUED) if i % 20 == 19 else next(answers) for i in range(len(jobs))
        ]  # fmt: skip

    storage.put = planted


def puts_backwards(storage: Any) -> None:
    """Jobs with a group are stored in the wrong order."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        if not all(job.group for job in jobs):
            return await put(jobs)
        return (await put(list(reversed(jobs))))[::-1]

    storage.put = planted


def forgets_delays(storage: Any) -> None:
    """Jobs for later are stored as due now."""
    put = storage.put

    async def planted(jobs: Sequence[NewJob]) -> list[Put]:
        return await put([replace(job, delay=None) for job in jobs])

    storage.put = planted


def forgets_ends(storage: Any) -> None:
    """One end in ten is said to be recorded and is not: the job runs again."""
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


def accepts_stale_ends(storage: Any) -> None:
    """The end of a run that has lost its job is recorded as if it were the job's own."""
    settle, claim, newest = storage.settle, storage.claim, {}

    async def claiming(*args: Any) -> Any:
        answer = await claim(*args)
        newest.update({(each.queue, each.id): each.token for each in answer.claims})
        return answer

    async def planted(settlements: Sequence[Settlement]) -> list[Settled]:
        return await settle([replace(each, token=newest[each.queue, each.id]) for each in settlements])

    storage.claim, storage.settle = claiming, planted
    renews_nothing(storage)


def renews_nothing(storage: Any) -> None:
    """Every renewal is said to be granted, and none is; what has run out is taken back at once."""

    async def planted(worker: str, held: Sequence[Any], lease: int) -> list[Renewal]:
        await storage.reap(list({each.queue for each in held}))
        return [Renewal(True)] * len(held)

    storage.renew = planted


def tells_no_failure(storage: Any) -> None:
    """Jobs fail without the job that tells of it."""
    settle = storage.settle

    async def planted(settlements: Sequence[Settlement]) -> list[Settled]:
        silent = [
            replace(s, resolution=replace(s.resolution, then=())) if isinstance(s.resolution, Fail) else s
            for s in settlements
        ]
        return await settle(silent)

    storage.settle = planted


def never_pauses(storage: Any) -> None:
    """A pause is acknowledged and nothing else."""

    async def planted(queue: str, paused: bool) -> bool:
        return True

    storage.set_paused = planted


@pytest.mark.parametrize(
    ("plant", "kind"),
    [
        (puts_less, "lost"), (puts_backwards, "disordered"), (forgets_delays, "early"), (forgets_ends, "doubled"),
        (accepts_stale_ends, "stale"), (renews_nothing, "overlapped"), (tells_no_failure, "unheard"),
    ],
)  # fmt: skip
async def test_a_planted_bug_is_found(tmp_path: Path, plant: Plant, kind: str) -> None:
    """A storage that breaks one promise is convicted of it by what its workers and producers wrote down."""
    assert kind in await run(tmp_path, plant)


async def test_a_pause_that_is_none_is_found(tmp_path: Path) -> None:
    """A queue that hands out jobs while it is paused is convicted of it."""
    assert "paused" in await run(tmp_path, never_pauses, kinds=["gate"], jobs=30)


async def test_too_much_capacity_is_found(tmp_path: Path) -> None:
    """A worker with more units than it may have runs too much at once."""
    assert "crowded" in await run(tmp_path, None, kinds=["sync"], capacity=500)
