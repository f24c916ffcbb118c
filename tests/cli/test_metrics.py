"""`penstock metrics` and `penstock health`."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from typing import Any

import pytest

from penstock import Penstock, Worker
from penstock.telemetry import collector
from tests.cli.conftest import Cli
from tests.support import eventually


def test_a_dashboard_and_alert_rules_are_printed(cli: Cli) -> None:
    """They need no storage."""
    assert json.loads(cli.ok("metrics", "--grafana", PENSTOCK_URL="nonsense:"))["title"] == "Penstock"
    assert cli.ok("metrics", "--rules", PENSTOCK_URL="nonsense:").startswith("groups:\n  - name: penstock\n")


def test_a_port_that_is_taken_is_an_error_that_names_it(cli: Cli) -> None:
    """The reason is that of the system."""
    cli.ok("enqueue", "q", "1")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"--port {port} cannot be used on 127.0.0.1: Address already in use" in cli.fails(
            "metrics", "--port", port
        )


def test_without_prometheus_client_the_command_names_the_line_to_install_it(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exit code is that of a wrong use."""
    monkeypatch.delitem(sys.modules, "penstock.telemetry.prometheus", raising=False)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    assert 'pip install "penstock[metrics]"' in cli.fails("metrics", code=2)
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        collector(Penstock("memory:"))


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:99999"])
def test_a_worker_with_a_wrong_address_does_not_start(cli: Cli, address: str) -> None:
    """The error names the option."""
    (cli.directory / "jobs.py").write_text("from penstock import Penstock\napp = Penstock('memory:')\n")
    result = cli.run("worker", "jobs:app", "--http", address)
    assert result.exit_code == 2
    assert "--http" in result.stderr
    assert "must end with a port" in result.stderr


def test_health_is_that_of_a_worker_by_its_id_or_of_this_host(cli: Cli) -> None:
    """A live one is exit code 0, none is 1."""
    cli.ok("enqueue", "q", "1")
    assert cli.run("health").exit_code == 1
    assert "no live worker w1" in cli.run("health", "--worker", "w1").stdout

    async def work(app: Penstock) -> list[Any]:
        app.listen("q", lambda payload: None)
        async with Worker(app, id="w1"):
            await eventually(app.workers)
            return [
                await asyncio.to_thread(cli.run, "health", *arguments)
                for arguments in ([], ["--worker", "w1"], ["--worker", "w2"], ["--json"])
            ]

    mine, first, second, as_json = cli.do(work)
    assert (mine.exit_code, first.exit_code, second.exit_code, as_json.exit_code) == (0, 0, 1, 0)
    answer = json.loads(as_json.stdout)
    assert answer["reachable"] is True
    assert [(worker["id"], worker["pid"]) for worker in answer["workers"]] == [("w1", os.getpid())]
    nothing = cli.run("health", "--json")
    assert (nothing.exit_code, json.loads(nothing.stdout)) == (1, {"reachable": True, "workers": []})
    assert first.stdout.startswith("worker w1 is alive; its last heartbeat came ")


def test_a_storage_that_cannot_be_reached_is_no_reason_to_restart(cli: Cli) -> None:
    """The exit code is 0, and the reason on stderr."""
    result = cli.run("health", "--url", "redis://127.0.0.1:1", PENSTOCK_URL=None)
    assert result.exit_code == 0
    assert "the storage cannot be reached" in result.stderr
    result = cli.run("health", "--url", "redis://127.0.0.1:1", "--json", PENSTOCK_URL=None)
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"reachable": False, "workers": []})
