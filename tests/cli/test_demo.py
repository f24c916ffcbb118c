"""`penstock demo`: three kinds of example jobs."""

from __future__ import annotations

from tests.cli.conftest import Cli


def test_the_demo_runs_all_jobs_in_order_and_deletes_its_queues(cli: Cli) -> None:
    """The demo finishes all jobs, reports the order of groups, and leaves no queue."""
    text = cli.ok("demo", "--url", cli.url, "--jobs", "60")
    assert "60 of 60 jobs finished" in text
    assert "group order: exact in every group" in text
    assert cli.json("queue", "ls", "--url", cli.url, "--namespace", "penstock-demo") == []
    assert "cannot reach" in cli.fails("demo", "--url", "redis://127.0.0.1:1")
