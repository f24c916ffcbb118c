"""Processes that handlers start or fork, fork servers, and sockets: none is left behind by a worker."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from penstock.storage.sqlite.wakeup import socket_directories
from tests.e2e.conftest import Program, Stage, is_alive, until

APP = "tests.e2e.failing_jobs:app"

pytestmark = pytest.mark.parametrize("url", ["sqlite"], indirect=True)


async def started(stage: Stage) -> tuple[Program, int, int, int]:
    """Start a worker and a run of `starts`; returns the child, its program, and the one in its own session."""
    await stage.enqueue("starts", "s")
    worker = stage.worker(app=APP, lease=30)
    words = await stage.line("started")
    return worker, int(words[3]), int(words[1]), int(words[2])


@pytest.mark.parametrize("ending", ["worker", "group", "child", "stop"])
async def test_programs_of_a_handler_end_with_its_process(stage: Stage, ending: str) -> None:
    """However a child ends, the programs that its handlers started end too, except those in a session of their own."""
    worker, child, program, daemon = await started(stage)
    everything = worker.children()
    try:
        if ending == "worker":
            worker.signal(signal.SIGKILL)
        elif ending == "group":
            worker.signal_group(signal.SIGKILL)
        elif ending == "child":
            os.kill(child, signal.SIGKILL)
        else:
            worker.signal(signal.SIGTERM)
            await until(lambda: "SIGTERM: stopping" in worker.output_text)  # two signals at once are one
            worker.signal(signal.SIGTERM)
        await until(lambda: not is_alive(child) and not is_alive(program))
        assert is_alive(daemon)
        if ending != "child":
            await until(lambda: [pid for pid in everything if is_alive(pid)] == [daemon])
    finally:
        os.kill(daemon, signal.SIGKILL)


@pytest.mark.parametrize(("queue", "loop"), [("forks", "uvloop"), ("forks-async", "uvloop"), ("forks-async", "plain")])
async def test_a_forked_copy_that_returns_from_a_handler_ends(stage: Stage, queue: str, loop: str) -> None:
    """A copy that a handler forked and that returns, or awaits, ends at once; its parent completes the job."""
    blocked = 'import sys; sys.modules["uvloop"] = None\n' if loop == "plain" else ""
    (stage.directory / "own.py").write_text(f"{blocked}from tests.e2e.failing_jobs import app\n")
    await stage.enqueue(queue, "f")
    worker = stage.worker(app="own:app")
    copy = int((await stage.line("copy"))[1])
    await until(lambda: not is_alive(copy))
    assert f"process {copy} is ended: a handler forked it, and it returned" in worker.output_text
    status = await stage.state(queue, "f", "completed")
    assert (status.attempts, status.stalls) == (1, 0)


async def test_a_fork_server_ends_although_its_pipe_is_kept_open(stage: Stage) -> None:
    """A fork server notices that its parent was killed, even if another process has inherited the pipe to it."""
    (stage.directory / "keeper.py").write_text(KEEPER)
    worker = stage.worker(app="keeper:app")
    [child] = await worker.working()
    server = parent_of(child)
    keeper = await until((stage.directory / "keeper").exists) and int((stage.directory / "keeper").read_text())
    try:
        worker.signal(signal.SIGKILL)
        await until(lambda: not is_alive(child) and not is_alive(server))
        assert is_alive(keeper)
    finally:
        os.kill(keeper, signal.SIGKILL)


#: The app; the parent forks a process that keeps all of its file descriptors, the pipe to the fork server among them.
KEEPER = """
import multiprocessing, os, threading, time
from multiprocessing import forkserver
from tests.e2e.jobs import app

def keep() -> None:
    while forkserver._forkserver._forkserver_alive_fd is None:
        time.sleep(0.01)
    pid = os.fork()
    if not pid:
        time.sleep(600)
        os._exit(0)
    with open("keeper.new", "w") as file:
        file.write(str(pid))
    os.rename("keeper.new", "keeper")

if multiprocessing.parent_process() is None:
    threading.Thread(target=keep, daemon=True).start()
"""


def parent_of(pid: int) -> int:
    """Return the id of a process's parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def sockets_in(directory: Path) -> set[str]:
    """Return the names of the sockets in a directory, which may not exist."""
    return {path.name for path in directory.glob("*")}


async def test_sockets_of_killed_processes_are_removed_by_the_next_opener(stage: Stage) -> None:
    """The sockets of a killed worker are gone when the next worker has started; live ones stay."""
    worker = stage.worker(processes=1)
    directory = Path(socket_directories(str(stage.directory / "jobs.db"))[0])
    pids = [worker.pid, *await worker.working()]
    left: set[str] = await until(lambda: {name for name in sockets_in(directory) if name.startswith(f"{worker.pid}-")})
    worker.signal(signal.SIGKILL)
    await until(lambda: not any(is_alive(pid) for pid in pids))  # its children end by themselves, and clean up
    assert left <= sockets_in(directory)
    live = {name for name in sockets_in(directory) if is_alive(int(name.partition("-")[0]))}
    await stage.worker().working()
    await until(lambda: not left & sockets_in(directory))
    assert live <= sockets_in(directory)
