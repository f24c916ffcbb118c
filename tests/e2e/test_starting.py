"""Start of a worker whose storage refuses writes, or whose record is missing."""

from __future__ import annotations

import signal

import pytest

from tests.e2e.conftest import Stage, until

REFUSING = """
import os
from penstock import StorageUnavailable
from tests.e2e.jobs import app

beat = app.storage.beat

async def refuse(*given):
    if not os.path.exists("accepts"):
        raise StorageUnavailable("the server cannot take this now: OOM")
    await beat(*given)

app.storage.beat = refuse
"""


@pytest.mark.parametrize("processes", [0, 2])
@pytest.mark.parametrize("wait", [True, False])
async def test_a_worker_retries_a_refused_first_heartbeat(stage: Stage, processes: int, wait: bool) -> None:
    """If the first heartbeat is refused, the worker logs one line, retries, and works when it succeeds."""
    (stage.directory / "refusing.py").write_text(REFUSING)
    options = ["--wait"] if wait else []
    worker = stage.worker(*options, app="refusing:app", processes=processes)
    gone = stage.worker(*options, app="refusing:app", processes=processes)
    await until(
        lambda: "cannot take this now" in worker.output_text and "cannot take this now" in gone.output_text, seconds=30
    )
    gone.signal(signal.SIGTERM)
    assert await gone.ended(30) == 0, gone.output_text
    (stage.directory / "accepts").touch()
    await until(lambda: "the storage can be reached again" in worker.output_text, seconds=30)
    await stage.enqueue("quick", "a")
    await stage.state("quick", "a", "completed", seconds=30)
    for program in (worker, gone):
        assert program.output_text.count("cannot take this now") == 1
        assert "Traceback" not in program.output_text


BROKEN = REFUSING.replace("StorageUnavailable", "StorageError").replace("OOM", "NOPERM")


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_first_heartbeat_that_fails_for_good_is_one_line(stage: Stage) -> None:
    """An error at the first heartbeat that a retry cannot cure ends the command with one line."""
    (stage.directory / "broken.py").write_text(BROKEN)
    worker = stage.worker("--wait", "--quiet", app="broken:app")
    assert await worker.ended(30) != 0
    assert "NOPERM" in worker.output_text
    assert worker.output_text.count("\n") == 1


LOSING = """
import os
from tests.e2e.jobs import app

beat, heard = app.storage.beat, []

async def lose(*given):
    heard.append(given)
    if len(heard) > 1:
        await beat(*given)

app.storage.beat = lose
"""


async def test_a_supervisor_registers_again_if_its_record_is_lost(stage: Stage) -> None:
    """If children do not find the record of their supervisor, as after a failover, it registers again."""
    (stage.directory / "losing.py").write_text(LOSING)
    worker = stage.worker(app="losing:app", processes=2)
    await worker.working(2)


APART = """
import os
from penstock import Penstock

app = Penstock(f"sqlite:jobs-{os.getpid()}.db")
app.listen("q", len)
"""


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
async def test_a_file_for_each_process_is_refused(stage: Stage) -> None:
    """An app that opens another file in each process is refused with one line that names both files."""
    (stage.directory / "apart.py").write_text(APART)
    worker = stage.worker("--quiet", app="apart:app")
    assert await worker.ended(25) == 1
    (line,) = [line for line in worker.output_text.splitlines() if line.startswith("Error")]
    assert f"jobs-{worker.pid}.db" in line
    assert line.count("/jobs-") == 2
    assert "Traceback" not in worker.output_text
