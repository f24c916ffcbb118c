"""`penstock worker` as a process: errors of one line, options, --wait and --reload."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.e2e.conftest import APP, Stage, until
from tests.servers import Server, redis_program

WRONG = {
    "nowhere:app": "no module 'nowhere'",
    "jobs.py": "write it as Python imports it, e.g. jobs:app",
    "broken:app": "importing 'broken' failed: ZeroDivisionError",
    "empty:app": "module 'empty' has no 'app'",
    "tests.e2e.jobs:apps": "did you mean tests.e2e.jobs:app?",
    "tests.e2e.jobs:create_app": "add () to call it",
    "empty:number": "is not a Penstock app",
}


@pytest.mark.parametrize("source", WRONG)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_an_app_that_cannot_be_imported_is_one_line(stage: Stage, source: str) -> None:
    """The error names the module and the remedy, without a traceback; exit code 2."""
    (stage.directory / "broken.py").write_text("1 / 0\n")
    (stage.directory / "empty.py").write_text("number = 1\n")
    worker = stage.worker(app=source)
    assert await worker.ended() == 2
    assert WRONG[source] in worker.output_text
    assert len(worker.output_text.strip().splitlines()) == 1


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_debug_shows_the_traceback(stage: Stage) -> None:
    """With --debug the traceback of the import error is printed."""
    (stage.directory / "broken.py").write_text("1 / 0\n")
    worker = stage.worker("--debug", app="broken:app")
    assert await worker.ended() == 2
    assert "Traceback" in worker.output_text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--queues", "nothing"], "'nothing' has no handler"),
        (["--capacity", "5"], "capacity (5) must be at least the size of"),
        (["--lease", "0"], "lease must be more than 0"),
        (["--processes", "-1"], "-1"),
    ],
)
@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_bad_options_are_refused(stage: Stage, options: list[str], words: str) -> None:
    """An invalid option is named in the error; exit code 2."""
    worker = stage.run("-m", "penstock", "worker", APP, *options)
    assert await worker.ended() == 2
    assert words in worker.output_text
    assert "Traceback" not in worker.output_text


async def test_only_the_named_queues_are_served(stage: Stage) -> None:
    """With --queues, jobs of other queues stay queued."""
    await stage.enqueue("quick", "a")
    await stage.enqueue("slow", "b", {"seconds": 0})
    worker = stage.worker("--queues", "slow", "--drain")
    assert await worker.ended() == 0
    assert (await stage.status("slow", "b")).state == "completed"
    assert (await stage.status("quick", "a")).state == "queued"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_factory_and_no_processes_work_too(stage: Stage) -> None:
    """`module:create_app()` is called, and --processes 0 runs handlers in the command's own process."""
    await stage.enqueue("quick", "a")
    worker = stage.worker("--drain", app="tests.e2e.jobs:create_app()", processes=0)
    assert await worker.ended() == 0
    assert (await stage.status("quick", "a")).result == worker.pid
    other = stage.worker("--drain", app="tests.e2e.jobs:create_app()")
    assert await other.ended() == 0


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_a_dead_server_is_one_line(stage: Stage) -> None:
    """Without --wait, a server that cannot be reached ends the command with one line."""
    stage.url = "redis://127.0.0.1:1/0"
    worker = stage.worker()
    assert await worker.ended() == 1
    assert worker.output_text.count("\n") == 1
    assert "cannot reach" in worker.output_text


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_a_worker_can_wait_for_its_server(stage: Stage) -> None:
    """With --wait the worker starts when the server does, and a signal ends the wait."""
    server = Server(redis_program()).start()
    server.kill()
    stage.url = f"redis://{server.address}/0"
    worker, gone = stage.worker("--wait"), stage.worker("--wait")
    try:
        await until(
            lambda: "waiting for the storage" in worker.output_text and "waiting for the storage" in gone.output_text
        )
        gone.signal(signal.SIGTERM)
        assert await gone.ended() == 0
        server.restart()
        await worker.working()
    finally:
        await worker.remove()
        server.remove()


JOBS = """
import os
from penstock import Penstock

app = Penstock(namespace=os.environ["PENSTOCK_NAMESPACE"])

@app.handler("versions")
async def versions(payload: dict) -> str:
    return "{version}"
"""


async def answer(stage: Stage, id: str) -> str:
    await stage.enqueue("versions", id)
    return (await stage.state("versions", id, "completed")).result


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_changed_source_file_starts_the_worker_again(stage: Stage, tmp_path: Path) -> None:
    """With --reload changed code is used, and after an import error the command waits for a change."""
    source = tmp_path / "changing.py"
    source.write_text(JOBS.replace("{version}", "one"))
    worker = stage.worker("--reload", app="changing:app")
    await worker.working()
    assert await answer(stage, "a") == "one"
    source.write_text(JOBS.replace("{version}", "two") + "\nnot python")
    await until(lambda: "waiting for a change" in worker.output_text)
    source.write_text(JOBS.replace("{version}", "second"))
    assert await answer(stage, "b") == "second"
