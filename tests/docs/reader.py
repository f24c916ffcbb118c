"""A reader of the documentation: an empty directory, a shell, and what a page says."""

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
#: What runs until somebody ends it.
LASTING = re.compile(r"penstock (?:worker|dev) (?!ls\b)(?!.*--drain)")
#: What is not done here: the reader has Penstock, and the repository's own targets have tests of their own.
DONE = ("pip ", "make ", "export ")
PATIENCE = 90


class Reader:
    """Types what a page says, in a directory of its own; `redis` gives the URL that stands for the page's."""

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
        """No settings of ours, this Penstock, the files beside the program, and plain output."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PENSTOCK_", "DJANGO_"))}
        path = os.pathsep.join([str(self.directory), str(Path(penstock.__file__).parents[1]), str(self._site)])
        return {**kept, "PATH": f"{self._programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": path}

    def save(self, name: str, text: str) -> Path:
        """Write a file that a page shows."""
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.here(text))
        return path

    def here(self, text: str) -> str:
        """What a page says, with the server that there is."""
        return REDIS.sub(self._redis(), text) if REDIS.search(text) else text

    def run(self, block: Block) -> None:
        """Run a block of Python; a file named test_… with pytest."""
        name = block.file or "example.py"
        program = self.save(name, "\n" * (block.line - 1) + block.text)  # a traceback names the line of the page
        way = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(self.directory)]
        self._done([sys.executable, "-W", "error", *(way if Path(name).name.startswith("test_") else []), str(program)])

    def type(self, line: str) -> str:
        """Type a line into the shell and give what it prints; a lasting command goes on, the one before it ends."""
        line = self.here(line)
        if line.startswith(DONE):
            return ""
        if not LASTING.match(line):
            return self._done(["sh", "-c", line])
        self.interrupt()
        with self._log.open("w") as log:
            self._lasting = subprocess.Popen(
                shlex.split(line, comments=True), cwd=self.directory, env=self.environment, text=True,
                stdout=log, stderr=log,
            )  # fmt: skip
        return ""

    def interrupt(self) -> None:
        """End what goes on, as Ctrl-C does."""
        if self._lasting is None:
            return
        self._lasting.send_signal(signal.SIGINT)
        try:
            code = self._lasting.wait(PATIENCE)
        finally:
            self._lasting.kill()
        assert code == 0, f"{self._lasting.args} ended with {code}:\n{self._log.read_text()[-3000:]}"
        self._lasting = None

    def _done(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self.directory, env=self.environment, text=True, timeout=PATIENCE, check=False,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert done.returncode == 0, f"{shlex.join(command)}: {done.stdout[-6000:]}"
        return done.stdout

    def _program(self, name: str, arguments: str) -> None:
        path = self._programs / name
        path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {arguments} "$@"\n')
        path.chmod(0o755)
