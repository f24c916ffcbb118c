"""Stopping of a worker: by signals, by a drain, by its own program."""

from __future__ import annotations

import signal

import pytest

from penstock import State
from tests.e2e.conftest import LONG_LEASE, Stage, until


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_lets_runs_finish(stage: Stage, number: int) -> None:
    """After a signal nothing is claimed, runs end, and the worker exits with 0; the whole group may get it."""
    await stage.enqueue("slow", "a", {"seconds": 1})
    worker = stage.worker("--id", "w")
    await stage.line("begin", "a")
    assert [each.id for each in await stage.app.storage.workers()] == ["w"]
    worker.signal_group(number)
    await until(lambda: f"{signal.Signals(number).name}: stopping" in worker.output_text)
    await stage.enqueue("quick", "b")
    assert await worker.ended() == 0, worker.output_text
    assert (await stage.status("slow", "a")).state == "completed"
    assert (await stage.status("quick", "b")).state == "queued"
    assert await stage.app.storage.workers() == []


@pytest.mark.parametrize("queue", ["slow", "thread", "greedy", "stubborn"])
async def test_runs_longer_than_the_grace_are_released(stage: Stage, queue: str) -> None:
    """A run that takes longer than the grace is released to its position, and its attempt is refunded."""
    await stage.enqueue(queue, "a")
    worker = stage.worker("--grace", "0.3", lease=LONG_LEASE)
    await stage.line("begin", "a")
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0, worker.output_text
    status = await stage.status(queue, "a")
    assert (status.state, status.attempts, status.stalls) == ("queued", 0, 0)


async def test_a_second_signal_releases_at_once(stage: Stage) -> None:
    """The first signal waits for the grace; the second releases all runs at once."""
    await stage.enqueue("slow", "a")
    worker = stage.worker("--grace", "60")
    await stage.line("begin", "a")
    worker.signal(signal.SIGTERM)
    await until(lambda: "SIGTERM: stopping" in worker.output_text)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0
    status = await stage.status("slow", "a")
    assert (status.state, status.attempts) == ("queued", 0)


ENDING = """
import os, sys, time
from tests.e2e.jobs import app

if os.path.exists("plain"):
    sys.modules["uvloop"] = None

class Last:
    def __del__(self, os=os, sleep=time.sleep):  # called while the interpreter shuts down
        if os.path.exists("stopping"):
            os.rename("stopping", "ending")
            while os.path.exists("ending"):
                sleep(0.01)

last = Last()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize(("processes", "loop"), [(0, "plain"), (1, "uvloop")])
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_signal_during_interpreter_exit_keeps_the_exit_code(
    stage: Stage, processes: int, loop: str, number: int
) -> None:
    """A signal while the interpreter shuts down does not change the exit code."""
    (stage.directory / "ending.py").write_text(ENDING)
    (stage.directory / loop).touch()
    await stage.enqueue("quick", "a")
    worker = stage.worker(app="ending:app", processes=processes)
    await stage.state("quick", "a", "completed", seconds=30)
    (stage.directory / "stopping").touch()
    worker.signal(number)
    await until((stage.directory / "ending").exists, seconds=30)
    worker.signal(number)
    worker.signal(signal.SIGTERM)
    (stage.directory / "ending").unlink()
    assert await worker.ended(30) == 0, worker.output_text


async def test_a_drain_ends_when_nothing_due_is_left(stage: Stage) -> None:
    """--drain runs due jobs in every process, leaves scheduled ones, and exits with 0."""
    for number in range(40):
        await stage.enqueue("quick", f"q{number}")
    await stage.enqueue("quick", "later", delay=3600)
    worker = stage.worker("--drain", processes=2)
    assert await worker.ended() == 0, worker.output_text
    counts = await stage.app.queue("quick").counts()
    assert (counts[State.COMPLETED], counts[State.SCHEDULED]) == (40, 1)


async def test_a_drain_runs_the_job_of_a_dead_child_again(stage: Stage) -> None:
    """A job whose process died is due again, so the drain runs it before it ends."""
    await stage.enqueue("poison", "p", {"how": "once"})
    worker = stage.worker("--drain", processes=2)
    assert await worker.ended() == 0
    status = await stage.status("poison", "p")
    assert (status.state, status.stalls) == ("completed", 1)


async def test_an_idle_worker_ends_at_once(stage: Stage) -> None:
    """An idle worker exits at once after a signal."""
    worker = stage.worker(processes=2)
    await worker.working(2)
    worker.signal(signal.SIGTERM)
    assert await worker.ended() == 0


SCRIPT = """
import asyncio, os, sys
from penstock import Job, Penstock, Worker

app = Penstock(namespace=os.environ["PENSTOCK_NAMESPACE"])

@app.handler("mine", timeout=60)
async def mine(payload: dict, job: Job) -> None:
    with open(payload["log"], "a") as file:
        file.write(f"begin {job.id} {job.attempt} {os.getpid()}\\n")
    await asyncio.sleep(payload.get("seconds", 60))

async def begun(count: int) -> None:
    while open(os.environ["PENSTOCK_TEST_LOG"]).read().count("begin") < count:
        await asyncio.sleep(0.02)

async def main() -> None:
    worker = Worker(app, processes=2, lease=3)
    async with worker:
        await begun(2)
        released = await worker.release_all()
        await begun(4)
    await worker.stop()
    print("released", released, flush=True)
    async with worker:
        await worker.stop(grace=0)
        await worker.stop()
    print("again", flush=True)

if __name__ == "__main__":
    asyncio.run(main())
"""


async def test_a_worker_of_a_script_releases_stops_and_starts_again(stage: Stage) -> None:
    """A `Worker` in `__main__` uses processes; `release_all()` covers all; it can be stopped and restarted."""
    script = stage.directory / "script.py"
    script.write_text(SCRIPT)
    for id in ("a", "b"):
        await stage.enqueue("mine", id, {"seconds": 1.0})
    program = stage.run(str(script))
    assert await program.ended() == 0, program.output_text
    assert "released 2" in program.output_text
    assert "again" in program.output_text
    assert (await stage.app.queue("mine").counts())[State.COMPLETED] == 2


async def test_an_app_in_memory_cannot_be_shared(stage: Stage) -> None:
    """A worker with processes refuses an app in memory, since each child would have its own database."""
    script = stage.directory / "private.py"
    script.write_text(SCRIPT.replace("Penstock(", 'Penstock("memory:", '))
    program = stage.run(str(script))
    assert await program.ended() == 1
    assert "memory: is private" in program.output_text


PARTS = {
    "core.py": 'import os\nfrom penstock import Penstock\napp = Penstock(namespace=os.environ["PENSTOCK_NAMESPACE"])\n',
    "one.py": 'from core import app\n@app.handler("one")\nasync def one(payload: dict) -> int:\n    return 1\n',
    "two.py": 'from core import app\n@app.handler("two")\nasync def two(payload: dict) -> int:\n    return 2\n',
    "main.py": "import asyncio, one, two\nfrom core import app\nfrom penstock import Worker\n"
    'if __name__ == "__main__":\n    asyncio.run(Worker(app, processes=1, lease=3).drain())\n',
    "late.py": "import asyncio\nfrom core import app\nfrom penstock import Worker\n"
    'if __name__ == "__main__":\n    app.listen("three", len)\n    asyncio.run(Worker(app, processes=1).drain())\n',
}


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_handlers_of_many_modules_are_all_there(stage: Stage) -> None:
    """Children have the handlers of every module; one registered only at run time is an error."""
    for name, text in PARTS.items():
        (stage.directory / name).write_text(text)
    await stage.enqueue("one", "a")
    await stage.enqueue("two", "b")
    program, late = stage.run("main.py"), stage.run("late.py")
    assert await program.ended() == 0, program.output_text
    assert ((await stage.status("one", "a")).result, (await stage.status("two", "b")).result) == (1, 2)
    assert await late.ended() == 1
    assert "no handler for 'three' in a child process" in late.output_text


BUSY = (
    SCRIPT.partition("async def main()")[0]
    + """
import time

async def main() -> None:
    async with Worker(app, processes=1, lease=1):
        await begun(1)
        time.sleep(2.5)

if __name__ == "__main__":
    asyncio.run(main())
"""
)


async def test_a_busy_parent_keeps_the_leases_of_its_children(stage: Stage) -> None:
    """A program that blocks its own event loop past the lease loses no job of its worker's children."""
    script = stage.directory / "busy.py"
    script.write_text(BUSY)
    await stage.enqueue("mine", "a", {"seconds": 2.0})
    program = stage.run(str(script))
    assert await program.ended() == 0, program.output_text
    status = await stage.status("mine", "a")
    assert (status.state, status.attempts, status.stalls) == ("completed", 1, 0)
