"""Commands on pseudo-terminals, each in a fork of one process that has imported them: far cheaper than a start each.

Run as a program, this module reads requests from stdin, one JSON object per line, and answers each with another.
"""

from __future__ import annotations

import fcntl
import importlib
import io
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any, NamedTuple

from tests.security.hostile_names import SOURCE, every_command

ROOT = Path(__file__).resolve().parent.parent.parent

#: Seconds that a command may take on a busy machine.
TIMEOUT = 60.0


class Shown(NamedTuple):
    """The output of a command on a terminal, with plain newlines, and its exit code."""

    output: str
    code: int


class Terminals:
    """The process that runs commands on terminals."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{ROOT}"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.security.terminals"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            text=True, cwd=ROOT, env=environment,
        )  # fmt: skip

    def run(
        self, *arguments: str, cwd: Path, until: str = "", meanwhile: tuple[str, ...] = (), **environment: str
    ) -> Shown:
        """Run a command to its end, or until a text is shown; repeat the command `meanwhile` as long as it runs."""
        assert self._process.stdin
        assert self._process.stdout
        request = {
            "arguments": arguments, "environment": environment, "cwd": str(cwd), "until": until, "meanwhile": meanwhile,
        }  # fmt: skip
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return Shown(*json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        """End the process by closing its input."""
        self._process.communicate()


def run_command(arguments: list[str], environment: dict[str, str], cwd: str) -> None:
    """Run a command in this process, whose descriptors 0 to 2 are its own, and exit."""
    from penstock.cli import main

    os.chdir(cwd)
    sys.path.insert(0, cwd)
    os.environ.update(environment)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w")  # noqa: SIM115
    code: Any = 1
    try:
        main(arguments, prog_name="penstock")
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


def run_elsewhere(request: dict[str, Any]) -> None:
    """Run the command `meanwhile` of a request once, without output."""
    pid = os.fork()
    if not pid:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(nowhere, descriptor)
        run_command(request["meanwhile"], request["environment"], request["cwd"])
    os.waitpid(pid, 0)


def answer(request: dict[str, Any]) -> Shown:
    """Run the command of a request on a terminal that is wide enough for every line."""
    pid, terminal = pty.fork()
    if not pid:
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 2500, 0, 0))
        run_command(request["arguments"], request["environment"], request["cwd"])
    output, end = b"", time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        if request["meanwhile"]:
            run_elsewhere(request)
        if not select.select([terminal], [], [], 0.05)[0]:
            continue
        try:
            data = os.read(terminal, 65536)
        except OSError:  # the command has ended
            data = b""
        output += data
        if not data:
            break
        if request["until"] and request["until"].encode() in output:
            os.kill(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return Shown(output.decode("utf-8", "replace").replace("\r\n", "\n"), os.waitstatus_to_exitcode(status))


def serve() -> None:
    """Answer requests until stdin ends."""
    every_command()  # imports the commands
    importlib.import_module("penstock.storage.sqlite")
    answers = io.TextIOWrapper(os.fdopen(os.dup(1), "wb"), line_buffering=True)
    for line in sys.stdin:
        answers.write(json.dumps(answer(json.loads(line))) + "\n")


if __name__ == "__main__":
    serve()
