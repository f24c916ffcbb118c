"""Limits over real processes: they are never exceeded, and the slots of a killed worker come back with its leases."""

from __future__ import annotations

import signal

from penstock import EVERY, Limit, Reason
from tests.e2e.conftest import Stage, until


def most_at_once(stage: Stage, prefix: str = "") -> int:
    """Return the largest number of runs at once, by the order of the lines in the log, of ids with this prefix."""
    running = most = 0
    for word, id, *_ in stage.lines():
        if id.startswith(prefix):
            running += {"begin": 1, "end": -1}[word]
            most = max(most, running)
    return most


async def test_the_slots_of_a_killed_worker_come_back_with_its_leases(stage: Stage) -> None:
    """While the leases of a killed worker hold, no job takes its slots; afterwards its jobs run again, and the next."""
    queue = stage.app.queue("thread")
    await queue.set_limit(Limit(concurrency=2))
    for id in ("a", "b"):
        await stage.enqueue("thread", id, {"seconds": 600, "again": 0.05})
    killed = stage.worker(lease=4)
    for id in ("a", "b"):
        await stage.line("begin", id, 1)
    await stage.enqueue("thread", "c", {"seconds": 0.05})
    why = await queue.why("c")
    assert why is not None
    assert (why.reason, why.used, sorted(why.holders)) == (Reason.LIMIT_REACHED, 2, ["a", "b"])
    other = stage.worker(lease=4)
    await other.working()
    killed.signal_group(signal.SIGKILL)
    await killed.ended()
    leases = [held.until for id in ("a", "b") if (held := await queue.why(id)) is not None and held.until is not None]
    await stage.state("thread", "c", "completed")
    begun = (await stage.status("thread", "a")).attempts, (await stage.status("thread", "b")).attempts
    assert begun == (2, 2)
    assert (await stage.status("thread", "a")).stalls == 1
    now = await stage.app.storage.time()
    assert len(leases) == 2
    assert now >= min(leases).timestamp() * 1000
    assert (await queue.limit()).running <= 2


async def test_two_workers_never_exceed_a_limit(stage: Stage) -> None:
    """Two workers with two processes each run no more jobs at once than the queue's and the groups' limits allow."""
    queue = stage.app.queue("slow")
    await queue.set_limit(Limit(concurrency=3))
    await queue.set_limit(Limit(concurrency=2), group=EVERY)
    for n in range(15):
        for group in ("x", "y"):
            await stage.enqueue("slow", f"{group}{n}", {"seconds": 0.02}, group=group)
    for _ in range(2):
        stage.worker(processes=2)
    await until(lambda: len(stage.lines("end")) == 30)
    assert len(stage.lines("begin")) == 30
    assert most_at_once(stage) <= 3
    assert most_at_once(stage, "x") <= 2
    assert most_at_once(stage, "y") <= 2


async def test_a_worker_with_processes_declares_its_limits(stage: Stage) -> None:
    """The main process of a worker declares the limits of its code before a child claims."""
    stage.worker(app="tests.e2e.limited_jobs:app", processes=2)
    for n in range(8):
        await stage.enqueue("limited", f"j{n}", {"seconds": 0.02})
    await until(lambda: len(stage.lines("end")) == 8)
    assert most_at_once(stage) == 1
    info = await stage.app.queue("limited").limit()
    assert (info.declared, info.limit) == (Limit(concurrency=1), Limit(concurrency=1))
