"""Names of queues in a shell: Tab and Enter in a real bash with the shipped completion run nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pty
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from penstock import Penstock
from penstock.cli import main
from penstock.cli.completion import offer
from tests.e2e.conftest import die_with_parent
from tests.security.hostile_names import HOSTILE, SOURCE, every_command
from tests.servers import skip_or_fail

#: Seconds that a text may take to appear on a busy machine.
TIMEOUT = 30.0

#: The command on the path of the shell: the real one completes; the one that Enter runs prints its arguments.
COMMAND = """#!/bin/sh
if [ -z "$_PENSTOCK_COMPLETE" ]; then printf 'ran with <%s>\\n' "$*"; exit 0; fi
exec {python} -P -m penstock "$@"
"""


class Bash:
    """An interactive bash on a terminal, with the completion of `penstock`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "bin").mkdir()
        command = directory / "bin" / "penstock"
        command.write_text(COMMAND.format(python=shlex.quote(sys.executable)))
        command.chmod(0o755)
        script = CliRunner().invoke(main, ["completion", "bash"], prog_name="penstock").stdout
        (directory / "completion").write_text(script)
        self.main, side = pty.openpty()
        environment = {
            "PATH": f"{directory / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(SOURCE), "TERM": "dumb",
            "PS1": "ready> ", "HOME": str(directory), "HISTFILE": "",
        }  # fmt: skip
        self.process = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-i"], stdin=side, stdout=side, stderr=side, cwd=directory,
            env=environment, start_new_session=True, preexec_fn=die_with_parent,
        )  # fmt: skip
        os.close(side)
        self.type("source ./completion; printf 'sour%s\\n' ced\r")
        self.until("sourced")

    def type(self, text: str) -> None:
        os.write(self.main, text.encode())

    def until(self, text: str) -> str:
        """Wait for a text, and return everything that was printed up to it."""
        output, end = "", time.monotonic() + TIMEOUT
        while text not in output:
            assert time.monotonic() < end, f"not shown: {text!r} in {output!r}"
            if select.select([self.main], [], [], 0.1)[0]:
                output += os.read(self.main, 65536).decode("utf-8", "replace")
        return output

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.main)


@pytest.fixture
def bash(tmp_path: Path) -> Iterator[Bash]:
    """A shell in an empty directory."""
    if shutil.which("bash") is None:
        skip_or_fail("there is no bash")
    shell = Bash(tmp_path)
    with contextlib.closing(shell):
        yield shell


def make_queue(path: Path, name: str) -> None:
    """Make a storage with one queue, so that Tab has one name to offer."""

    async def enqueue() -> None:
        async with Penstock(f"sqlite:{path}") as app:
            await app.queue(name).enqueue(1)

    asyncio.run(enqueue())


@pytest.mark.parametrize(
    "name",
    [
        "$(touch${IFS}made)",
        "`touch${IFS}made`",
        "x;touch${IFS}made",
        "\nplain,$(touch${IFS}made)",
        "\x1b]0;title\x07\x1b[2Jx",
        "-rf",
    ],
    ids=["dollar", "backquotes", "semicolon", "newline", "escape", "option"],
)
def test_tab_and_enter_run_no_name_of_a_queue(bash: Bash, name: str) -> None:
    """Tab offers none of these names, so Enter runs the command as it was typed."""
    make_queue(bash.directory / "jobs.db", name)
    bash.type(f"export PENSTOCK_URL=sqlite:{bash.directory / 'jobs.db'}\r")
    bash.type("penstock queue show \t\r")
    output = bash.until(">\r\n")
    assert "ran with <queue show>" in output
    assert "\x1b]0" not in output
    assert not (bash.directory / "made").exists()


def test_tab_offers_a_plain_name(bash: Bash) -> None:
    """A name without special characters is completed."""
    make_queue(bash.directory / "jobs.db", "mail/EU_1.b@c+d-e")
    bash.type(f"export PENSTOCK_URL=sqlite:{bash.directory / 'jobs.db'}\r")
    bash.type("penstock queue show ma\t\r")
    assert "ran with <queue show mail/EU_1.b@c+d-e>" in bash.until("e>\r\n")


def test_only_plain_names_are_offered() -> None:
    """A name with any other character, or that looks like an option, is not offered, even if it was typed in part."""
    assert [item.value for item in offer([*HOSTILE, "--all", "-x", "", "a b", "a*", "~a", "é", "mail"], "")] == ["mail"]
    for name in HOSTILE:
        assert offer([name], name[:1]) == []


def test_every_completion_of_stored_names_is_filtered(tmp_path: Path) -> None:
    """Each parameter of each command that completes by a function offers no hostile name of the storage."""
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    for name in [*HOSTILE[:20], *HOSTILE[-6:], "mail"]:
        make_queue(tmp_path / "jobs.db", name)
    offered = set[str]()
    for command in every_command().values():
        for parameter in command.params:
            context = click.Context(command)
            context.params = {"url": url}
            offered.update(item.value for item in parameter.shell_complete(context, "") if item.type == "plain")
    assert "mail" in offered
    assert all(word.replace("-", "").replace("_", "").isalnum() for word in offered), offered
