"""Processes that die by a job, by a signal or with their parent, and processes that are frozen."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.e2e.conftest import LONG_LEASE, Stage, is_alive, until


def is_stopped(pid: int) -> bool:
    """Return whether a process is stopped by SIGSTOP."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


async def test_jobs_run_in_child_processes(stage: Stage) -> None:
    """Handlers run in the children, the job's worker is the id that was given, and the children measure their runs."""
    worker = stage.worker("--id", "parent", processes=2)
    pids = await worker.working(2)
    await stage.enqueue("slow", "a", {"seconds": 0.3})
    begun = await stage.line("begin", "a")
    assert int(begun[-1]) in pids
    assert (await stage.status("slow", "a")).worker == "parent"
    assert (await stage.state("slow", "a", "completed")).result == "slept"
    worker.signal(signal.SIGTERM)
    await worker.ended()
    measured = (await stage.app.queue("slow").stats()).run
    assert measured.count == 1
    assert measured.mean is not None
    assert measured.mean >= 0.3


async def test_jobs_of_a_killed_child_are_run_again_at_once(stage: Stage) -> None:
    """Jobs of a child that dies are run again long before their lease is over, by a child that replaces it."""
    await stage.enqueue("slow", "a")
    worker = stage.worker(lease=LONG_LEASE)
    pid = int((await stage.line("begin", "a", 1))[-1])
    os.kill(pid, signal.SIGKILL)
    again = await stage.line("begin", "a", 2)
    assert int(again[-1]) != pid
    assert (await stage.status("slow", "a")).stalls == 1
    assert worker.process.poll() is None


@pytest.mark.parametrize("how", ["kill", "exit", "segfault"])
async def test_a_job_that_kills_its_process_fails_in_the_end(stage: Stage, how: str) -> None:
    """After max_stalls the job is failed and its fail handler runs; other jobs of the process complete."""
    for number in range(3):
        await stage.enqueue("slow", f"n{number}", {"seconds": 0.3})
    await stage.enqueue("poison", "p", {"how": how})
    stage.worker()
    status = await stage.state("poison", "p", "failed")
    assert (status.stalls, status.error and status.error.type) == (3, "StallError")
    assert (await stage.line("gave_up", "p"))[2:4] == ["StallError", "stall"]
    for number in range(3):
        neighbour = await stage.state("slow", f"n{number}", "completed")
        assert neighbour.stalls < 3


async def test_children_die_with_their_parent(stage: Stage) -> None:
    """When the parent is killed its children end by themselves, even one whose interpreter is held."""
    await stage.enqueue("slow", "a")
    await stage.enqueue("greedy", "g")
    worker = stage.worker(processes=2)
    pids = await worker.working(2)
    await stage.line("begin", "g", 1)
    worker.signal(signal.SIGKILL)
    await until(lambda: not any(map(is_alive, pids)))
    other = stage.worker()
    await other.working()
    await stage.line("begin", "a", 2)


async def test_a_frozen_worker_kills_its_stale_runs_when_it_goes_on(stage: Stage) -> None:
    """Past its lease the job runs elsewhere; thawed, the old run is killed and reports nothing."""
    await stage.enqueue("thread", "a", {"seconds": 60, "again": 0.5})
    frozen = stage.worker("--id", "frozen", lease=1)
    stale = int((await stage.line("begin", "a", 1))[-1])
    frozen.signal_group(signal.SIGSTOP)
    os.kill(stale, signal.SIGSTOP)
    stage.worker("--id", "fresh", lease=1)
    await stage.line("begin", "a", 2)
    os.kill(stale, signal.SIGCONT)
    frozen.signal_group(signal.SIGCONT)
    await until(lambda: not is_alive(stale))
    await stage.line("lease_lost", "a", 1)
    status = await stage.state("thread", "a", "completed")
    assert (status.attempts, status.stalls) == (2, 1)
    assert not stage.lines("end", "a", 1)
    await until(lambda: len(frozen.workers()) == 1)


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_frozen_worker_begins_no_run_after_its_lease(stage: Stage, processes: int) -> None:
    """Of ten jobs it is frozen in the first run; the ten complete elsewhere; thawed, it begins none of the other nine.

    A child goes on before its parent does, so it decides by itself.
    """
    ids = [f"j{number}" for number in range(10)]
    for id in ids:
        await stage.enqueue("freezes", id, {"freeze": True})
    frozen = stage.worker("--id", "frozen", "--queues", "freezes", processes=processes, lease=1)
    stopped = int((await stage.line("begin", "j0", 1))[-1])
    await until(lambda: is_stopped(stopped))
    frozen.signal(signal.SIGSTOP)
    stage.worker("--id", "fresh", processes=0)
    for id in ids:
        assert (await stage.state("freezes", id, "completed")).attempts == 2
    os.kill(stopped, signal.SIGCONT)
    for id in ids:
        await stage.line("lease_lost", id, 1)
    frozen.signal(signal.SIGCONT)
    assert [line[1] for line in stage.lines("begin") if line[2] == "1"] == ["j0"]


async def test_a_frozen_child_goes_on_if_its_parent_kept_its_leases(stage: Stage) -> None:
    """A child that was stopped for longer than its lease begins its other runs: the parent has renewed them."""
    for number in range(10):
        await stage.enqueue("freezes", f"j{number}", {"freeze": True} if number == 0 else None)
    worker = stage.worker("--queues", "freezes", lease=1)
    stopped = int((await stage.line("begin", "j0", 1))[-1])
    await until(lambda: is_stopped(stopped))
    until_over = time.monotonic() + 1.5
    await until(lambda: time.monotonic() > until_over)
    os.kill(stopped, signal.SIGCONT)
    for number in range(10):
        status = await stage.state("freezes", f"j{number}", "completed")
        assert (status.attempts, status.stalls) == (1, 0)
    assert worker.workers() == [stopped]


async def test_a_frozen_parent_does_not_leave_stale_runs_behind(stage: Stage) -> None:
    """A child whose leases the frozen parent does not renew gives up its runs by itself."""
    await stage.enqueue("slow", "a")
    worker = stage.worker(lease=1)
    await stage.line("begin", "a", 1)
    worker.signal(signal.SIGSTOP)
    await stage.line("cancelled", "a", 1)
    worker.signal(signal.SIGCONT)
    await stage.line("begin", "a", 2)


async def test_a_poison_job_does_not_take_its_batch_down(stage: Stage) -> None:
    """When one job of a batch kills the process the jobs come back one by one: it alone fails, the others complete."""
    for id in "abcd":
        await stage.enqueue("batches", id, {"poison": 1} if id == "c" else None)
    stage.worker()
    await stage.state("batches", "c", "failed", seconds=30)
    assert await stage.line("gave_up", "c", "StallError", "stall", seconds=30)
    for id in "abd":
        status = await stage.state("batches", id, "completed")
        assert (status.stalls, status.attempts) == (1, 2)
    assert stage.lines("batch")[0][1:-1] == ["a", "b", "c", "d"]
    assert {len(line[1:-1]) for line in stage.lines("batch")[1:]} == {1}


async def test_a_queue_that_one_child_serves_is_served_by_its_replacement(stage: Stage) -> None:
    """With `concurrency=1` one of two children serves the queue; when it dies, only the child that replaces it does."""
    worker = stage.worker(processes=2)
    first = await worker.working(2)
    await stage.enqueue("single", "a")
    holder = int((await stage.line("begin", "a", 1))[-1])
    (sibling,) = set(first) - {holder}
    os.kill(holder, signal.SIGKILL)
    successor = int((await stage.line("begin", "a", 2, seconds=20))[-1])
    assert successor not in first
    os.kill(sibling, signal.SIGKILL)
    await until(lambda: len(worker.workers()) == 2 and sibling not in worker.workers(), seconds=20)
    await stage.enqueue("single", "b", {"seconds": 0})
    await stage.app.queue("single").cancel("a", running="kill")
    assert int((await stage.line("begin", "b", 1, seconds=20))[-1]) == successor
    assert [line[1] for line in stage.lines("begin")] == ["a", "a", "b"]
