"""The log of `penstock worker`: why a run failed, where it hangs, and how a worker starts and stops."""

from __future__ import annotations

import os
import re
import signal

import pytest

from tests.e2e.conftest import Program, Stage, until

APP = "tests.e2e.failing_jobs:app"

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


async def logged(program: Program, pattern: str) -> str:
    """Wait for a match in the output of a program; returns the matching text."""
    found = await until(lambda: re.search(pattern, program.output_text, re.MULTILINE | re.DOTALL))
    return found.group()


async def test_a_quiet_worker_logs_each_failure_and_the_traceback_of_the_last(stage: Stage) -> None:
    """With -q a failed run is one WARNING with error, place and next try; a job that failed for good is an ERROR."""
    await stage.enqueue("raises", "a")
    worker = stage.worker("-q", app=APP)
    error = r"raised ConnectionError: refused \(\S*failing_jobs.py:\d+\)"
    await logged(worker, rf"WARNING \d+ penstock.worker.run_log: raises/a: attempt 1 of 2 {error}; next try in 10 ms$")
    text = await logged(worker, r"ERROR .*: raises/a: failed for good after 2 runs: ConnectionError: refused \(.*")
    await logged(worker, r"^  ConnectionError: refused$")
    assert "Traceback (most recent call last):" in text
    assert " completed" not in worker.output_text
    assert " starts: " not in worker.output_text


@pytest.mark.parametrize(("queue", "line"), [("hangs", "time.sleep(600)"), ("ignores", "await asyncio.sleep(600)")])
async def test_a_run_that_hangs_is_named_with_its_stack(stage: Stage, queue: str, line: str) -> None:
    """The log names a job that does not end and the line at which it is; its error has that stack too."""
    await stage.enqueue(queue, "h")
    worker = stage.worker(app=APP)
    named = rf"has 1 run that does not end \({queue}/h after its timeout of 0.2 s\): it is replaced"
    stack = await logged(worker, named + rf".*?{re.escape(line)}")
    assert f", in {queue}\n" in stack
    status = await stage.state(queue, "h", "failed")
    await logged(worker, rf"ERROR .*: {queue}/h: failed for good after 1 run: the run took longer than its timeout")
    assert status.error is not None
    assert f", in {queue}\n    {line}" in status.error.traceback


async def test_a_process_that_dies_while_it_writes_its_stacks_was_killed(stage: Stage) -> None:
    """The fault handler may crash a process that is about to be killed: its job has timed out, and no run stalled."""
    await stage.enqueue("fragile", "f")
    stage.worker(app=APP)
    status = await stage.state("fragile", "f", "failed")
    assert status.error is not None
    assert (status.error.type, status.timeouts, status.stalls) == ("RunTimeout", 1, 0)


@pytest.mark.parametrize(("how", "death"), [("exit", "exit code 3"), ("abort", "signal 6, SIGABRT")])
async def test_a_crash_is_logged_with_its_exit_and_its_jobs(stage: Stage, how: str, death: str) -> None:
    """The log has how the process died, with which runs, and for a fatal signal the stack."""
    await stage.enqueue("dies", "d", {"how": how})
    worker = stage.worker(app=APP)
    await logged(worker, rf"process \d+ died \({death}\) with 1 run \(dies/d\); another one starts$")
    await logged(worker, rf"WARNING .*: dies/d: attempt 1: its process died \({death}\); it is queued again$")
    await logged(worker, r"ERROR .*: dies/d: failed for good after 1 run: its worker stopped answering 1 time ")
    assert ("in dies\n" in worker.output_text) == (how == "abort")


async def test_a_worker_logs_its_storage_queues_and_the_runs_that_it_waits_for(stage: Stage) -> None:
    """The first line has version, storage, namespace, queues and processes; a signal's line names the runs."""
    await stage.enqueue("slow", "a")
    worker = stage.worker("--id", "w1", "--queues", "slow,quick", "--grace", "30")
    await stage.line("begin", "a")
    place = re.escape(f"on {stage.url}, namespace {stage.namespace}, 2 queues (quick, slow), 1 child process, pid ")
    await logged(worker, rf"worker w1 starts: Penstock \S+ {place}{worker.pid}$")
    worker.signal(signal.SIGTERM)
    await logged(worker, r"SIGTERM: stopping, waiting up to 30 s for 1 run \(slow/a\); a second signal releases all at")
    worker.signal(signal.SIGTERM)
    await logged(worker, r"SIGTERM: stopping, 1 run \(slow/a\) released$")
    assert await worker.ended() == 0


async def test_a_replaced_child_with_changed_code_is_warned_of(stage: Stage) -> None:
    """When a child is replaced after a source file has changed, the log names the file."""
    module = stage.directory / "own.py"
    module.write_text("from tests.e2e.jobs import app\n")
    worker = stage.worker(app="own:app")
    [pid] = await worker.working()
    module.write_text("from tests.e2e.jobs import app\n# changed\n")
    os.utime(module, (1, 1))
    os.kill(pid, signal.SIGKILL)
    await logged(worker, r"WARNING .*: own.py changed since this worker started: process \d+ has the new code")


async def test_an_import_error_names_its_place(stage: Stage) -> None:
    """An app whose module raises is refused with the file and line of the error."""
    (stage.directory / "settings.py").write_text("SIZE = 1\nSHARE = SIZE / 0\n")
    (stage.directory / "broken.py").write_text("import settings\n")
    worker = stage.worker(app="broken:app")
    assert await worker.ended() == 2
    assert "importing 'broken' failed: ZeroDivisionError: division by zero (settings.py:2)" in worker.output_text


async def test_jobs_of_a_dead_worker_are_named_when_they_are_taken_back(stage: Stage) -> None:
    """A worker that takes back the jobs of a dead one logs its id and the jobs."""
    await stage.enqueue("slow", "a")
    first = stage.worker("--id", "first", lease=1)
    await stage.line("begin", "a")
    first.signal(signal.SIGKILL)
    second = stage.worker(lease=1)
    await logged(second, r"WARNING .*: took back 1 job of worker first, which stopped answering: slow/a$")
