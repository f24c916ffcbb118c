"""`penstock worker` and `penstock dev` as processes: where the app is found, what is warned of, the live log."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import APP, Stage, stage, until, url
from tests.servers import Server, redis_program

__all__ = ["stage", "url"]  # the fixtures

JOBS = """
import os
from penstock import Penstock

app = Penstock(namespace=os.environ["PENSTOCK_NAMESPACE"])

@app.handler("answers", max_retries=0)
async def answers(payload: dict) -> str:
    {line}
"""


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_finds_its_app(stage: Stage) -> None:
    """Without an argument the app is the project's; an option still says how to work."""
    (stage.directory / "pyproject.toml").write_text(f'[tool.penstock]\napp = "{APP}"\n')
    await stage.enqueue("quick", "a")
    worker = stage.run("-m", "penstock", "worker", "--drain", "--processes", "0")
    assert await worker.ended(30) == 0
    assert (await stage.status("quick", "a")).state == "completed"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_without_an_app_says_how_to_name_it(stage: Stage) -> None:
    """Three ways to name the app are told; exit code 2."""
    worker = stage.run("-m", "penstock", "worker")
    assert await worker.ended(30) == 2
    for way in ("MODULE:APP", "PENSTOCK_APP", "[tool.penstock]"):
        assert way in worker.said


@pytest.fixture
def forgetful() -> Iterator[Server]:
    """A server that drops keys when its memory is full."""
    server = Server(redis_program()).start()
    try:
        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        yield server
    finally:
        server.remove()


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_a_server_that_drops_jobs_is_a_loud_warning(stage: Stage, forgetful: Server) -> None:
    """The worker says before anything else that jobs may be lost, and what to change."""
    stage.url = f"redis://:@{forgetful.address}/0"
    worker = stage.worker("--drain", processes=0)
    assert await worker.ended(30) == 0
    first = worker.said.splitlines()[0]
    assert "WARNING" in first
    assert "JOBS MAY BE LOST" in first
    assert "CONFIG SET maxmemory-policy noeviction" in first


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_dev_tells_why_and_begins_again(stage: Stage, tmp_path: Path) -> None:
    """A failed run is told with its traceback, and a changed file is used for the next."""
    source = tmp_path / "changing.py"
    source.write_text(JOBS.replace("{line}", 'raise ValueError("not yet written")'))
    program = stage.run("-m", "penstock", "dev", "changing:app")
    await program.working()
    await stage.enqueue("answers", "a")
    await until(lambda: "ValueError: not yet written" in program.said, 30)
    assert "Traceback" in program.said
    source.write_text(JOBS.replace("{line}", 'return "written"'))
    await until(lambda: "starting again" in program.said, 30)
    await stage.enqueue("answers", "b")
    assert (await stage.state("answers", "b", "completed", seconds=30)).result == "written"
