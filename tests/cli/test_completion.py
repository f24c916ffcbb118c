"""`penstock completion`: scripts for shells, and the words that they offer."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from penstock.cli import main
from tests.cli.conftest import Cli, on_sqlite


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_completion_script_is_printed(shell: str) -> None:
    """`penstock completion` prints a script for each shell."""
    result = CliRunner().invoke(main, ["completion", shell], prog_name="penstock")
    assert result.exit_code == 0
    assert "_PENSTOCK_COMPLETE" in result.stdout


def complete(cli: Cli, *words: str) -> list[str]:
    """Return the words that the shell offers for the last one."""
    environment = {"_PENSTOCK_COMPLETE": "fish_complete", "COMP_WORDS": " ".join(["penstock", *words[:-1]])}
    environment["COMP_CWORD"] = words[-1]
    result = CliRunner().invoke(main, [], prog_name="penstock", env={**cli.environment, **environment})
    return [line.split(",", 1)[1].split("\t")[0] for line in result.stdout.splitlines() if line.startswith("plain,")]


@on_sqlite
def test_commands_options_and_queues_are_completed(cli: Cli) -> None:
    """Completion offers commands, subcommands, `worker ls`, options and existing queues."""
    cli.do(lambda app: app.queue("mail").enqueue(1))
    assert complete(cli, "que") == ["queue"]
    assert complete(cli, "queue", "sh") == ["show"]
    assert "ls" in complete(cli, "worker", "l")
    assert complete(cli, "worker", "s") == ["stop"]
    assert complete(cli, "job", "ls", "--sta") == ["--state"]
    assert complete(cli, "queue", "show", "m") == ["mail"]
    assert complete(Cli("redis://127.0.0.1:1", cli.directory), "queue", "show", "m") == []
