"""`penstock worker` and `penstock dev` as processes: choice of the app, warnings, reload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, StorageUnavailable, Worker
from penstock.cli.worker import WorkerSession
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
    """Without an argument the worker runs the app named in pyproject.toml."""
    (stage.directory / "pyproject.toml").write_text(f'[tool.penstock]\napp = "{APP}"\n')
    await stage.enqueue("quick", "a")
    worker = stage.run("-m", "penstock", "worker", "--drain", "--processes", "0")
    assert await worker.ended(30) == 0
    assert (await stage.status("quick", "a")).state == "completed"


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_worker_without_an_app_is_a_usage_error(stage: Stage) -> None:
    """Without an app the error lists the three ways to name it; exit code 2."""
    worker = stage.run("-m", "penstock", "worker")
    assert await worker.ended(30) == 2
    for way in ("MODULE:APP", "PENSTOCK_APP", "[tool.penstock]"):
        assert way in worker.output_text


@pytest.fixture
def evicting_server() -> Iterator[Server]:
    """A server that evicts keys when its memory is full."""
    server = Server(redis_program()).start()
    try:
        with server.client() as client:
            client.config_set("maxmemory-policy", "allkeys-lru")
        yield server
    finally:
        server.remove()


@pytest.mark.parametrize("url", ["redis"], indirect=True)
async def test_an_evicting_server_is_logged_as_the_first_warning(stage: Stage, evicting_server: Server) -> None:
    """The first log line of the worker warns that jobs may be lost, and has the remedy."""
    stage.url = f"redis://:@{evicting_server.address}/0"
    worker = stage.worker("--drain", processes=0)
    assert await worker.ended(30) == 0
    first = worker.output_text.splitlines()[0]
    assert "WARNING" in first
    assert "JOBS MAY BE LOST" in first
    assert "CONFIG SET maxmemory-policy noeviction" in first


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_dev_logs_tracebacks_and_restarts_on_a_change(stage: Stage, tmp_path: Path) -> None:
    """`dev` logs a failed run with its traceback, and restarts when a file changes."""
    source = tmp_path / "changing.py"
    source.write_text(JOBS.replace("{line}", 'raise ValueError("not yet written")'))
    program = stage.run("-m", "penstock", "dev", "changing:app")
    await program.working()
    await stage.enqueue("answers", "a")
    await until(lambda: "ValueError: not yet written" in program.output_text, 30)
    assert "Traceback" in program.output_text
    source.write_text(JOBS.replace("{line}", 'return "written"'))
    await until(lambda: "starting again" in program.output_text, 30)
    await stage.enqueue("answers", "b")
    assert (await stage.state("answers", "b", "completed", seconds=30)).result == "written"


class LateApp(Penstock):
    """An app whose storage opens at the third try."""

    tries = 0

    async def open(self) -> None:
        self.tries += 1
        if self.tries < 3:
            raise StorageUnavailable("not yet")


@pytest.mark.parametrize(
    ("where", "wait", "drain", "waits"),
    [
        ("sqlite:jobs.db", False, False, True),
        ("sqlite:jobs.db", False, True, False),
        ("redis://host", False, False, False),
        ("redis://host", True, False, True),
    ],
)
async def test_a_worker_waits_at_its_start_for_a_file(where: str, wait: bool, drain: bool, waits: bool) -> None:
    """A full disk or a locked file is waited for at the start, a server only with --wait."""
    app = LateApp(where)
    session = WorkerSession(app, Worker(app), 0, wait, drain, False)
    if waits:
        assert await session._open()
        assert app.tries == 3
    else:
        with pytest.raises(StorageUnavailable):
            await session._open()
