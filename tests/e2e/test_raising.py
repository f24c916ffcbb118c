"""Handlers that raise exceptions which `except Exception` does not catch, in real processes."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.conftest import LONG_LEASE, Stage

#: The storage makes no difference to them.
pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)

#: A program with a worker in its own process, without a timeout and with a lease that a test does not wait for.
PROGRAM = f"""
import asyncio
from penstock import Worker
from tests.e2e.jobs import app

asyncio.run(Worker(app, lease={LONG_LEASE}).run())
"""

QUEUES = ["raises", "raises-plain", "raises-batch"]


@pytest.mark.parametrize("queue", QUEUES)
async def test_a_child_outlives_any_exception_of_a_handler(stage: Stage, queue: str) -> None:
    """Each run ends at once as a failed attempt; the child goes on, also after `KeyboardInterrupt`."""
    worker = stage.worker(lease=LONG_LEASE)
    pids = await worker.working()
    for how in ("OwnBaseError", "GeneratorExit", "CancelledError", "KeyboardInterrupt"):
        await stage.enqueue(queue, how, {"how": how})
        status = await stage.state(queue, how, "failed")
        assert (status.attempts, status.stalls, status.error and status.error.type) == (1, 0, how)
    await stage.enqueue("quick", "last")
    assert (await stage.state("quick", "last", "completed")).result == pids[0]


@pytest.mark.parametrize("queue", QUEUES)
async def test_a_keyboard_interrupt_of_a_handler_stops_the_worker_after_its_run_is_settled(
    stage: Stage, queue: str
) -> None:
    """The program ends as by Ctrl-C: the raising job has failed, and the job that ran beside it is released."""
    program = stage.run("-c", PROGRAM)
    await stage.enqueue("slow", "beside")
    await stage.line("begin", "beside", 1)
    await stage.enqueue(queue, "a", {"how": "KeyboardInterrupt"})
    assert await program.ended() == -signal.SIGINT
    status = await stage.status(queue, "a")
    assert (status.state, status.error and status.error.type) == ("failed", "KeyboardInterrupt")
    beside = await stage.status("slow", "beside")
    assert (beside.state, beside.attempts) == ("queued", 0)


async def test_a_keyboard_interrupt_of_a_handler_stops_the_command(stage: Stage) -> None:
    """`penstock worker --processes 0` lets its other runs finish, as after one Ctrl-C, and exits with 0."""
    worker = stage.worker(processes=0, lease=LONG_LEASE)
    await stage.enqueue("slow", "beside", {"seconds": 1})
    await stage.line("begin", "beside", 1)
    await stage.enqueue("raises", "a", {"how": "KeyboardInterrupt"})
    assert await worker.ended() == 0
    assert (await stage.status("raises", "a")).state == "failed"
    assert (await stage.status("slow", "beside")).state == "completed"
