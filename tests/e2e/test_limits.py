"""Limits of runs and children: timeouts, --max-jobs, --max-rss, and cancel requests."""

from __future__ import annotations

import pytest

from penstock import State
from tests.e2e.conftest import LONG_LEASE, Stage, is_alive, until


async def test_a_handler_that_holds_the_interpreter_loses_nothing(stage: Stage) -> None:
    """The supervisor renews the lease of a run whose own process is blocked for three times the lease."""
    await stage.enqueue("greedy", "g", {"seconds": 3})
    stage.worker(lease=1)
    stage.worker(lease=1)
    status = await stage.state("greedy", "g", "completed")
    assert (status.result, status.attempts, status.stalls) == ("held", 1, 0)


async def test_an_async_run_is_cancelled_at_its_deadline(stage: Stage) -> None:
    """An async run is cancelled at its timeout, and its process goes on."""
    await stage.enqueue("slow", "a", timeout=0.3, max_attempts=1)
    worker = stage.worker()
    pids = await worker.working()
    status = await stage.state("slow", "a", "failed")
    assert (status.timeouts, status.error and status.error.kind) == (1, "timeout")
    assert stage.lines("cancelled", "a")
    assert worker.workers() == pids


@pytest.mark.parametrize("queue", ["thread", "greedy", "stubborn"])
async def test_a_run_that_cannot_be_ended_costs_its_process(stage: Stage, queue: str) -> None:
    """A timed-out thread, blocked interpreter or uncancellable task fails its job, and its process is killed."""
    await stage.enqueue(queue, "a", timeout=0.8, max_attempts=1)
    worker = stage.worker()
    pid = int((await stage.line("begin", "a"))[-1])
    status = await stage.state(queue, "a", "failed")
    assert (status.timeouts, status.error and status.error.type) == (1, "RunTimeout")
    await until(lambda: not is_alive(pid))
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert worker.process.poll() is None
    assert not stage.lines("end", "a")


async def test_other_runs_finish_before_a_stuck_process_is_killed(stage: Stage) -> None:
    """Other runs in the process of a stuck run finish; new jobs go to a new process at once."""
    await stage.enqueue("slow", "innocent", {"seconds": 2.5})
    stage.worker()
    pid = (await stage.line("begin", "innocent"))[-1]
    await stage.enqueue("thread", "overdue", timeout=0.3, max_attempts=1)
    assert (await stage.line("begin", "overdue"))[-1] == pid
    await until(lambda: "it is replaced" in stage.programs[0].output_text)
    await stage.enqueue("quick", "next")
    assert (await stage.line("quick", "next"))[-1] != pid
    assert not stage.lines("end", "innocent")
    status = await stage.state("slow", "innocent", "completed")
    assert (status.attempts, status.stalls) == (1, 0)
    assert (await stage.state("thread", "overdue", "failed")).timeouts == 1
    await until(lambda: not is_alive(int(pid)))


async def test_concurrency_holds_while_a_process_is_replaced(stage: Stage) -> None:
    """Runs in a process that is being replaced still count: `concurrency=1` waits for the last one there."""
    await stage.enqueue("single", "first", {"seconds": 3})
    stage.worker()
    pid = (await stage.line("begin", "first"))[-1]
    await stage.enqueue("thread", "overdue", timeout=0.3, max_attempts=1)
    assert (await stage.line("begin", "overdue"))[-1] == pid
    await stage.enqueue("single", "second", {"seconds": 0})
    await until(lambda: "it is replaced" in stage.programs[0].output_text)
    await stage.state("single", "second", "completed")
    lines = [tuple(line[:2]) for line in stage.lines() if line[1] in ("first", "second")]
    assert lines == [("begin", "first"), ("end", "first"), ("begin", "second"), ("end", "second")]


async def test_other_runs_in_a_blocked_process_are_released(stage: Stage) -> None:
    """Other runs in a blocked process are released and run elsewhere, with their attempt refunded."""
    await stage.enqueue("slow", "innocent", {"seconds": 1})
    stage.worker()
    pid = (await stage.line("begin", "innocent"))[-1]
    await stage.enqueue("greedy", "overdue", timeout=0.8, max_attempts=1)
    assert (await stage.line("begin", "overdue"))[-1] == pid
    status = await stage.state("slow", "innocent", "completed")
    assert (status.attempts, status.stalls, status.timeouts) == (1, 0, 0)
    assert (await stage.state("greedy", "overdue", "failed")).timeouts == 1


async def test_a_timed_out_job_enqueues_its_fail_job(stage: Stage) -> None:
    """A timeout that the supervisor settles enqueues a fail job with the original payload."""
    await stage.enqueue("poison", "p", {"how": "hang"}, timeout=0.2)
    stage.worker()
    assert (await stage.line("gave_up", "p"))[2:4] == ["RunTimeout", "timeout"]


async def test_a_child_is_replaced_after_max_jobs(stage: Stage) -> None:
    """With --max-jobs children are replaced after about that many jobs, and no job is lost."""
    for number in range(60):
        await stage.enqueue("quick", f"q{number}")
    worker = stage.worker("--max-jobs", "10", "--drain")
    assert await worker.ended() == 0
    assert (await stage.app.queue("quick").counts())[State.COMPLETED] == 60
    assert len({line[-1] for line in stage.lines("quick")}) >= 3


async def test_a_child_with_too_much_memory_is_replaced(stage: Stage) -> None:
    """With --max-rss a child that uses more memory is drained and replaced."""
    await stage.enqueue("hungry", "h", {"bytes": 300 * 2**20})
    worker = stage.worker("--max-rss", "200")
    pid = int((await stage.line("quick", "h"))[-1])
    await until(lambda: not is_alive(pid))
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert "it is replaced" in worker.output_text


async def test_a_signal_reaches_a_running_job(stage: Stage) -> None:
    """`cancel(running="signal")` reaches a running handler long before the next renewal."""
    await stage.enqueue("asks", "a")
    stage.worker(lease=LONG_LEASE)
    await stage.line("begin", "a")
    assert (await stage.app.queue("asks").cancel("a", running="signal")).status == "cancel_requested"
    assert (await stage.state("asks", "a", "completed")).result == "asked"


@pytest.mark.parametrize("queue", ["slow", "thread", "greedy"])
async def test_a_kill_ends_any_run(stage: Stage, queue: str) -> None:
    """`cancel(running="kill")` cancels an async run, kills the process of any other, and the job is cancelled."""
    await stage.enqueue(queue, "a")
    stage.worker(lease=LONG_LEASE)
    pid = int((await stage.line("begin", "a"))[-1])
    await stage.app.queue(queue).cancel("a", running="kill")
    await stage.state(queue, "a", "cancelled")
    assert is_alive(pid) == (queue == "slow")
