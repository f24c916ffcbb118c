"""`penstock demo`: three kinds of example jobs."""

from __future__ import annotations

import subprocess
import sys

from tests.cli.conftest import Cli


def test_the_demo_runs_all_jobs_in_order_and_deletes_its_queues(cli: Cli) -> None:
    """The demo finishes all jobs, reports the order of groups, and leaves no queue."""
    text = cli.ok("demo", "--url", cli.url, "--jobs", "60")
    assert "60 of 60 jobs finished" in text
    assert "group order: exact in every group" in text
    assert cli.json("queue", "ls", "--url", cli.url, "--namespace", "penstock-demo") == []
    assert "cannot reach" in cli.fails("demo", "--url", "redis://127.0.0.1:1")


def test_the_demo_prints_nothing_but_its_report() -> None:
    """The failures of the demo are on purpose, so a program without logging shows none of them on stderr."""
    command = [sys.executable, "-m", "penstock", "demo", "--jobs", "60"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    assert "60 of 60 jobs finished" in done.stdout
    assert done.stderr == ""
