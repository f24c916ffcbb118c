"""A reader of the documentation: saves files, runs programs and types commands in an empty directory."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import penstock
from tests.docs.blocks import Block
from tests.installed import install_plugin

REDIS = re.compile(r"redis://localhost:6379")
#: Commands that run until they are interrupted.
LASTING = re.compile(r"penstock (?:worker|dev) (?!ls\b)(?!.*--drain)")
#: Commands that are skipped: Penstock is installed already, and the targets of the Makefile have tests of their own.
SKIPPED = ("pip ", "make ", "export ")
TIMEOUT = 90


class Reader:
    """Follows a page in a directory of its own; `redis` returns the URL to use instead of the page's."""

    def __init__(self, directory: Path, redis: Callable[[], str]) -> None:
        self.directory = directory / "here"
        self._redis = redis
        self._lasting: subprocess.Popen[str] | None = None
        self._log = directory / "log"
        self._programs = directory / "bin"
        self.directory.mkdir()
        self._programs.mkdir()
        self._site = install_plugin(directory)
        self._program("python", "")
        self._program("penstock", "-m penstock")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands: this Penstock, the reader's files, and no settings of the test run."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "DJANGO_"))}
        path = os.pathsep.join([str(self.directory), str(Path(penstock.__file__).parents[1]), str(self._site)])
        return {**kept, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}

    def save(self, name: str, text: str) -> Path:
        """Write a file that a page shows."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.with_server(text))
        return path

    def with_server(self, text: str) -> str:
        """Return a text of a page with the URL of the test's server."""
        return REDIS.sub(self._redis(), text) if REDIS.search(text) else text

    def run(self, block: Block) -> None:
        """Run a block of Python; a file named test_… with pytest."""
        name = block.file or "example.py"
        program = self.save(name, "\n" * (block.line - 1) + block.text)  # a traceback names the line of the page
        pytest_options = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(self.directory)]
        self._run(
            [
                sys.executable,
                "-W",
                "error",
                *(pytest_options if Path(name).name.startswith("test_") else []),
                str(program),
            ]
        )

    def type(self, line: str) -> str:
        """Type a line into the shell and return its output; a worker goes on, and the one before it is interrupted."""
        line = self.with_server(line)
        if line.startswith(SKIPPED):
            return ""
        if not LASTING.match(line):
            return self._run(["sh", "-c", line])
        self.interrupt()
        with self._log.open("w") as log:
            self._lasting = subprocess.Popen(
                shlex.split(line, comments=True), cwd=self.directory, env=self.environment, text=True,
                stdout=log, stderr=log,
            )  # fmt: skip
        return ""

    def interrupt(self) -> None:
        """Interrupt the running worker, as Ctrl-C does."""
        if self._lasting is None:
            return
        self._lasting.send_signal(signal.SIGINT)
        try:
            code = self._lasting.wait(TIMEOUT)
        finally:
            self._lasting.kill()
        assert code == 0, f"{self._lasting.args} ended with {code}:\n{self._log.read_text()[-3000:]}"
        self._lasting = None

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, text=True, timeout=TIMEOUT, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout[-6000:]}"
        return done.stdout

    def _program(self, name: str, arguments: str) -> None:
        path = self._programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        path.chmod(0o755)
