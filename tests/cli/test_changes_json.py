"""`--json` of commands that change queues and limits: one shape each, also when nothing changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from penstock.cli import main


@pytest.mark.parametrize(
    ("command", "shape"),
    [
        (["queue", "pause", "mail", "--group", "acme"], [{"queue": "mail", "group": "acme"}]),
        (["queue", "resume", "mail"], [{"queue": "mail", "group": None}]),
        (
            ["limit", "set", "mail", "--concurrency", "2"],
            {"queue": "mail", "group": None, "every_group": False, "family": None},
        ),
        (
            ["limit", "set", "mail", "--every-group", "--concurrency", "2"],
            {"queue": "mail", "group": None, "every_group": True, "family": None},
        ),
        (
            ["limit", "reset", "--family", "llm"],
            {"queue": None, "group": None, "every_group": False, "family": "llm"},
        ),
    ],
)
def test_a_change_is_printed_as_json(tmp_path: Path, command: list[str], shape: object) -> None:
    """The target and whether it changed; a second time nothing changes, in the same shape."""
    url = f"sqlite:{tmp_path / 'penstock.db'}"
    runner = CliRunner()
    assert runner.invoke(main, ["enqueue", "mail", "1", "--url", url]).exit_code == 0
    if command[1] == "resume":
        assert runner.invoke(main, ["queue", "pause", "mail", "--url", url]).exit_code == 0
    if command[1] == "reset":
        assert runner.invoke(main, ["limit", "set", "--family", "llm", "--rate", "1/s", "--url", url]).exit_code == 0
    for changed in (True, False):
        answer = runner.invoke(main, [*command, "--json", "--url", url])
        assert answer.exit_code == 0, answer.output
        found = json.loads(answer.stdout)
        for each in found if isinstance(found, list) else [found]:
            assert each.pop("changed") is changed
        assert found == shape
