"""`penstock dashboard`: what keeps it from starting, in one line each."""

from __future__ import annotations

import socket

import pytest

from penstock.cli import dashboard
from tests.cli.conftest import Cli


def test_without_the_extra_the_line_to_install_it_is_printed(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and one line with pip."""
    monkeypatch.setattr(dashboard, "find_spec", lambda name: None)
    assert 'pip install "penstock[dashboard]"' in cli.fails("dashboard", code=2)


def test_an_address_of_other_machines_needs_a_token(cli: Cli) -> None:
    """Without PENSTOCK_DASHBOARD_TOKEN nothing listens on it."""
    assert "PENSTOCK_DASHBOARD_TOKEN" in cli.fails("dashboard", "--host", "0.0.0.0", code=2)


def test_two_targets_are_refused(cli: Cli) -> None:
    """An app and a URL exclude each other."""
    assert "not two" in cli.fails("dashboard", "jobs:app", "--url", "memory:", code=2)


def test_a_port_that_is_taken_is_named(cli: Cli) -> None:
    """The line names another option."""
    cli.ok("enqueue", "mail", "1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert "--port names another" in cli.fails("dashboard", "--port", port)
