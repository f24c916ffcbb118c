"""`penstock worker --http`: health and metrics of a worker and its processes; `penstock metrics` for the fleet."""

from __future__ import annotations

import os
import re
import signal
import urllib.error
import urllib.request

import pytest

from tests.e2e.conftest import Program, Stage, until


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


async def address(program: Program) -> str:
    """Wait for the line with the address of the server."""
    found = await until(lambda: re.search(r"serving (http://\S+)/metrics", program.output_text))
    return found.group(1)


@pytest.mark.parametrize("processes", [0, 1])
async def test_a_worker_serves_its_health_and_metrics(stage: Stage, processes: int) -> None:
    """It is ready when it works, counts the runs of its children, and is not ready while it stops."""
    program = stage.worker("--http", "127.0.0.1:0", "--grace", "30", processes=processes)
    url = await address(program)
    await until(lambda: get(f"{url}/readyz") == (200, "ready\n"))
    assert get(f"{url}/healthz") == (200, "healthy\n")
    await stage.enqueue("quick", "a")
    await stage.state("quick", "a", "completed")
    line = 'penstock_worker_runs_total{outcome="completed",queue="quick"} 1.0'
    text = await until(lambda: line in (text := get(f"{url}/metrics")[1]) and text)
    assert 'penstock_worker_units{kind="capacity"}' in text
    if processes:
        [child] = await program.working()
        os.kill(child, signal.SIGKILL)
        restarted = 'penstock_worker_children_restarted_total{reason="died"} 1.0'
        await until(lambda: restarted in get(f"{url}/metrics")[1])
    await stage.enqueue("slow", "b", {"seconds": 60})
    await stage.line("begin", "b")
    program.signal(signal.SIGTERM)
    await until(lambda: get(f"{url}/readyz") == (503, "the worker is stopping\n"))
    assert get(f"{url}/healthz")[0] == 200
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0


async def test_the_fleet_is_served_by_a_command_of_its_own(stage: Stage) -> None:
    """It needs the storage alone, and ends with exit code 0 when it is stopped."""
    await stage.enqueue("quick", "a")
    program = stage.run(
        "-m", "penstock", "metrics", "--port", "0", "--url", stage.url, "--namespace", stage.namespace
    )  # fmt: skip
    url = await address(program)
    assert 'penstock_jobs{queue="quick",state="queued"} 1.0' in get(f"{url}/metrics")[1]
    assert '"wanted_workers": 1' in get(f"{url}/scale?queue=quick&target=30")[1]
    program.signal(signal.SIGTERM)
    assert await program.ended() == 0
