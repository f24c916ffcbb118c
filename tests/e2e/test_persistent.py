"""Jobs without a timeout: run by one worker, moved when it stops or dies, ended by a cancel."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.conftest import LONG_LEASE, Stage, until


@pytest.mark.parametrize("queue", ["slow", "thread"])
async def test_a_persistent_task_moves_when_its_worker_stops(stage: Stage, queue: str) -> None:
    """On a stop, a run without a timeout is released at once and uncharged; a run with one may end within the grace."""
    first = stage.worker("--grace", "600", "--id", "first", lease=LONG_LEASE)
    await stage.enqueue(queue, "p", timeout=None)
    pid = (await stage.line("begin", "p", 1))[-1]
    await stage.enqueue("slow", "bounded", {"seconds": 3})
    await stage.line("begin", "bounded", 1)
    second = stage.worker("--id", "second", lease=LONG_LEASE)
    await second.working()
    first.signal(signal.SIGTERM)
    await stage.state("slow", "bounded", "completed", seconds=20)
    assert await first.ended(seconds=20) == 0

    def moved() -> list[list[str]]:
        return [line for line in stage.lines("begin", "p", 1) if line[-1] != pid]

    await until(moved, seconds=20)
    status = await stage.status(queue, "p")
    assert (status.worker, status.attempts, status.stalls) == ("second", 1, 0)
    assert len(stage.lines("begin", "bounded")) == 1


async def test_a_persistent_task_moves_when_its_worker_dies(stage: Stage) -> None:
    """After the lease of a killed worker another runs the job, with one stall."""
    first = stage.worker("--id", "first", lease=1)
    await stage.enqueue("slow", "p", timeout=None)
    await stage.line("begin", "p", 1)
    second = stage.worker("--id", "second", lease=1)
    await second.working()
    first.signal_group(signal.SIGKILL)
    await stage.line("begin", "p", 2, seconds=30)
    assert (await stage.status("slow", "p")).stalls == 1


async def test_a_persistent_task_ends_when_asked(stage: Stage) -> None:
    """`cancel(running="signal")` ends a run without a timeout."""
    stage.worker()
    await stage.enqueue("asks", "p", timeout=None)
    await stage.line("begin", "p", 1)
    assert (await stage.app.queue("asks").cancel("p", running="signal")).status == "cancel_requested"
    await stage.state("asks", "p", "completed", seconds=20)
