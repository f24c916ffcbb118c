"""Help that teaches, completion, the generated reference, and what a worker does not import."""

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
    """--help works everywhere, says what the command does, and shows how it is used."""
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
def test_every_example_is_understood(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each example names commands, options and values that exist."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mail.jsonl").touch()
    words = shlex.split(line.partition(" < ")[0].partition(" > ")[0].partition(" >> ")[0])[1:]
    context = click.Context(main, info_name="penstock")
    command: click.Command = main
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    command.make_context("x", words, parent=context)


def test_the_list_of_commands(tmp_path: Path) -> None:
    """`penstock --help` shows every command under its heading, without importing any of them."""
    result = CliRunner().invoke(main, ["--help"], prog_name="penstock")
    for name, lazy in COMMANDS.items():
        assert f"  {name} " in result.stdout
        assert f"{lazy.section}:" in result.stdout


def test_the_reference_is_up_to_date() -> None:
    """docs/reference/cli.md is what `python scripts/cli_reference.py` writes now."""
    assert PAGE.read_text("utf-8") == page(), "run: python scripts/cli_reference.py"


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_completion_script_is_printed(shell: str) -> None:
    """Each shell gets its script."""
    result = CliRunner().invoke(main, ["completion", shell], prog_name="penstock")
    assert result.exit_code == 0
    assert "_PENSTOCK_COMPLETE" in result.stdout


def complete(cli: Cli, *words: str) -> list[str]:
    """What the shell offers for the last word."""
    environment = {"_PENSTOCK_COMPLETE": "fish_complete", "COMP_WORDS": " ".join(["penstock", *words[:-1]])}
    environment["COMP_CWORD"] = words[-1]
    result = CliRunner().invoke(main, [], prog_name="penstock", env={**cli.environment, **environment})
    return [line.split(",", 1)[1].split("\t")[0] for line in result.stdout.splitlines() if line.startswith("plain,")]


@on_sqlite
def test_commands_options_and_queues_are_completed(cli: Cli) -> None:
    """The shell is offered commands, subcommands, `worker ls`, options, and the queues that are there."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    assert complete(cli, "que") == ["queue"]
    assert complete(cli, "queue", "sh") == ["show"]
    assert "ls" in complete(cli, "worker", "l")
    assert complete(cli, "job", "ls", "--sta") == ["--state"]
    assert complete(cli, "queue", "show", "m") == ["mail"]
    assert complete(Cli("redis://127.0.0.1:1", cli.directory), "queue", "show", "m") == []


LOOK = """
import sys
from click.testing import CliRunner
from penstock.cli import main
CliRunner().invoke(main, sys.argv[1:])
import json
print(json.dumps(sorted(name for name in sys.modules if name.split(".")[0] in ("rich", "redis", "pygments"))))
"""


@pytest.mark.parametrize("arguments", [["worker", "--help"], ["worker", "nowhere:app"], ["--help"], ["queue", "ls"]])
def test_nothing_is_imported_for_nothing(arguments: list[str], tmp_path: Path) -> None:
    """A worker, and whatever is piped, imports neither rich nor a client that it does not use."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-c", LOOK, *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=environment,
        check=True,
    )
    assert json.loads(done.stdout) == []
