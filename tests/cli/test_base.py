"""Behaviour of all commands: help with examples, errors, the generated reference, and lazy imports."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock.cli import COMMANDS, main
from penstock.cli.base import CommandWithExamples
from scripts.cli_reference import PAGE, commands, page
from tests.cli.conftest import Cli, on_sqlite
from tests.e2e.conftest import ROOT

ALL = dict(commands())
LEAVES = {name: command for name, command in ALL.items() if not isinstance(command, click.Group)}


@pytest.mark.parametrize("name", ALL)
def test_every_command_has_help_with_examples(name: str) -> None:
    """--help of every command has its usage, its first sentence and examples."""
    result = CliRunner().invoke(main, [*name.split()[1:], "--help"], prog_name="penstock")
    assert result.exit_code == 0
    assert f"Usage: {name}" in result.stdout
    assert " ".join((ALL[name].help or "").split(".")[0].split()) in " ".join(result.stdout.split())
    if name in LEAVES:
        assert "Examples:" in result.stdout


def examples() -> list[str]:
    every = [
        line
        for command in (main, *LEAVES.values())
        if isinstance(command, CommandWithExamples)
        for line in command.examples
    ]
    parts = [part.strip() for line in every for part in line.partition("  #")[0].split(" | ")]
    return sorted({part for part in parts if part.startswith("penstock ") and "COMMAND" not in part})


@pytest.mark.parametrize("line", examples())
def test_every_example_in_the_help_can_be_parsed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example in the help names commands, options and values that exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mail.jsonl").touch()
    arguments = shlex.split(line.partition(" < ")[0].partition(" > ")[0].partition(" >> ")[0])[1:]
    context = click.Context(main, info_name="penstock")
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments.pop(0))
        assert found is not None, line
        command = found
    command.make_context("x", arguments, parent=context)


def test_help_lists_every_command_in_its_section(tmp_path: Path) -> None:
    """`penstock --help` lists every command under its heading."""
    result = CliRunner().invoke(main, ["--help"], prog_name="penstock")
    for name, lazy in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert f"{lazy.section}:" in result.stdout


def test_the_reference_is_up_to_date() -> None:
    """docs/reference/cli.md equals what `python scripts/cli_reference.py` writes."""
    assert PAGE.read_text("utf-8") == page(), "run: python scripts/cli_reference.py"


LIST_IMPORTS = """
import sys
from click.testing import CliRunner
from penstock.cli import main
CliRunner().invoke(main, sys.argv[1:])
import json
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] in ("rich", "redis", "pygments"))))
"""


@pytest.mark.parametrize("arguments", [["worker", "--help"], ["worker", "nowhere:app"], ["--help"], ["queue", "ls"]])
def test_workers_and_piped_commands_do_not_import_rich_or_redis(arguments: list[str], tmp_path: Path) -> None:
    """A worker and a piped command import neither rich nor a client that they do not use."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", LIST_IMPORTS, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert json.loads(done.stdout) == []


@on_sqlite
def test_debug_shows_the_traceback(cli: Cli) -> None:
    """With --debug the traceback of an error is printed."""
    from click.testing import CliRunner

    from penstock.cli import main

    result = CliRunner().invoke(main, ["queue", "ls", "--url", "redis://127.0.0.1:1", "--debug"])
    assert result.exit_code == 1
    assert "Traceback" in result.stderr


@on_sqlite
def test_an_unknown_command_is_answered_with_the_near_one(cli: Cli) -> None:
    """A mistyped command is answered with the closest name and exit code 2."""
    assert "did you mean queue?" in cli.fails("queu", code=2)
    assert "did you mean show?" in cli.fails("queue", "shwo", code=2)
