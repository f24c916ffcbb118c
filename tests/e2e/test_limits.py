"""Runs that take too long or hold their process; children that have done enough; requests to cancel."""

from __future__ import annotations

import pytest

from penstock import State
from tests.e2e.conftest import LONG_LEASE, Stage, is_alive, until


async def test_a_handler_that_holds_the_interpreter_loses_nothing(stage: Stage) -> None:
    """The lease of a run is kept from outside, three times over, while its own process can do nothing."""
    await stage.enqueue("greedy", "g", {"seconds": 3})
    stage.worker(lease=1)
    stage.worker(lease=1)
    status = await stage.state("greedy", "g", "completed")
    assert (status.result, status.attempts, status.stalls) == ("held", 1, 0)


async def test_an_async_run_is_cancelled_at_its_deadline(stage: Stage) -> None:
    """A run that lets itself be cancelled costs no process."""
    await stage.enqueue("slow", "a", timeout=0.3, max_attempts=1)
    worker = stage.worker()
    pids = await worker.working()
    status = await stage.state("slow", "a", "failed")
    assert (status.timeouts, status.error and status.error.kind) == (1, "timeout")
    assert stage.lines("cancelled", "a")
    assert worker.workers() == pids


@pytest.mark.parametrize("queue", ["thread", "greedy", "stubborn"])
async def test_a_run_that_cannot_be_ended_costs_its_process(stage: Stage, queue: str) -> None:
    """A thread, a held interpreter and a task that will not be cancelled are timeouts like any other."""
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


async def test_the_innocent_finish_before_their_process_is_killed(stage: Stage) -> None:
    """Runs beside a guilty one go on to their end; new jobs go to a new process at once."""
    await stage.enqueue("slow", "innocent", {"seconds": 2.5})
    stage.worker()
    pid = (await stage.line("begin", "innocent"))[-1]
    await stage.enqueue("thread", "guilty", timeout=0.3, max_attempts=1)
    assert (await stage.line("begin", "guilty"))[-1] == pid
    await until(lambda: "it is replaced" in stage.programs[0].said)
    await stage.enqueue("quick", "next")
    assert (await stage.line("quick", "next"))[-1] != pid
    assert not stage.lines("end", "innocent")
    status = await stage.state("slow", "innocent", "completed")
    assert (status.attempts, status.stalls) == (1, 0)
    assert (await stage.state("thread", "guilty", "failed")).timeouts == 1
    await until(lambda: not is_alive(int(pid)))


async def test_concurrency_holds_while_a_process_is_replaced(stage: Stage) -> None:
    """A process that is to go still counts: a queue with `concurrency=1` waits for its last run there."""
    await stage.enqueue("single", "first", {"seconds": 3})
    stage.worker()
    pid = (await stage.line("begin", "first"))[-1]
    await stage.enqueue("thread", "guilty", timeout=0.3, max_attempts=1)
    assert (await stage.line("begin", "guilty"))[-1] == pid
    await stage.enqueue("single", "second", {"seconds": 0})
    await until(lambda: "it is replaced" in stage.programs[0].said)
    await stage.state("single", "second", "completed")
    told = [tuple(line[:2]) for line in stage.lines() if line[1] in ("first", "second")]
    assert told == [("begin", "first"), ("end", "first"), ("begin", "second"), ("end", "second")]


async def test_the_innocent_in_a_held_process_are_given_back(stage: Stage) -> None:
    """What cannot finish because its process does nothing any more runs elsewhere, and its attempt is refunded."""
    await stage.enqueue("slow", "innocent", {"seconds": 1})
    stage.worker()
    pid = (await stage.line("begin", "innocent"))[-1]
    await stage.enqueue("greedy", "guilty", timeout=0.8, max_attempts=1)
    assert (await stage.line("begin", "guilty"))[-1] == pid
    status = await stage.state("slow", "innocent", "completed")
    assert (status.attempts, status.stalls, status.timeouts) == (1, 0, 0)
    assert (await stage.state("greedy", "guilty", "failed")).timeouts == 1


async def test_a_timed_out_job_tells_its_fail_handler(stage: Stage) -> None:
    """What the parent settles is whole: the fail handler gets the original payload."""
    await stage.enqueue("poison", "p", {"how": "hang"}, timeout=0.2)
    stage.worker()
    assert (await stage.line("buried", "p"))[2:4] == ["RunTimeout", "timeout"]


async def test_a_child_is_replaced_after_its_share_of_jobs(stage: Stage) -> None:
    """With --max-jobs no process runs many more than that, and nothing is lost."""
    for number in range(60):
        await stage.enqueue("quick", f"q{number}")
    worker = stage.worker("--max-jobs", "10", "--drain")
    assert await worker.ended() == 0
    assert (await stage.app.queue("quick").counts())[State.COMPLETED] == 60
    assert len({line[-1] for line in stage.lines("quick")}) >= 3


async def test_a_child_with_too_much_memory_is_replaced(stage: Stage) -> None:
    """With --max-rss a process that keeps memory is drained and replaced."""
    await stage.enqueue("hungry", "h", {"bytes": 300 * 2**20})
    worker = stage.worker("--max-rss", "200")
    pid = int((await stage.line("quick", "h"))[-1])
    await until(lambda: not is_alive(pid))
    await stage.enqueue("quick", "b")
    await stage.state("quick", "b", "completed")
    assert "it is replaced" in worker.said


async def test_a_signal_reaches_a_running_job(stage: Stage) -> None:
    """A run that is asked to end hears it at once, long before the next renewal, and may end as it likes."""
    await stage.enqueue("asks", "a")
    stage.worker(lease=LONG_LEASE)
    await stage.line("begin", "a")
    assert (await stage.app.queue("asks").cancel("a", running="signal")).status == "cancel_requested"
    assert (await stage.state("asks", "a", "completed")).result == "asked"


@pytest.mark.parametrize("queue", ["slow", "thread", "greedy"])
async def test_a_kill_ends_any_run(stage: Stage, queue: str) -> None:
    """An async run is cancelled; a thread or a held interpreter costs its process; the job ends as cancelled."""
    await stage.enqueue(queue, "a")
    stage.worker(lease=LONG_LEASE)
    pid = int((await stage.line("begin", "a"))[-1])
    await stage.app.queue(queue).cancel("a", running="kill")
    await stage.state(queue, "a", "cancelled")
    assert is_alive(pid) == (queue == "slow")
