"""Run an example: every process of its Procfile, until the last one has done its work, or until Ctrl-C.

    python examples/run.py webhooks

A process that is killed or stopped is started again, as systemd would do it. One that fails ends the example.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import string
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parent
GRACE = 15.0


class Part:
    """One process of an example, in a process group of its own, its output passed on line by line."""

    def __init__(self, name: str, command: list[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self._command = command
        self._folder = folder
        self._environment = environment
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, cwd=self._folder, env=self._environment, process_group=0, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.say(f"started, pid {self._process.pid}")
        self._reader = threading.Thread(target=self._pass_on, args=(self._process,), daemon=True)
        self._reader.start()

    def say(self, line: str) -> None:
        print(f"{self.name:<8} | {line}\n", end="", flush=True)

    def look(self) -> int | None:
        """The exit code, once it has ended by itself; one that was killed starts again."""
        code = self._process.poll()
        if code is None or code >= 0:
            return code
        self.say(f"killed by {signal.Signals(-code).name}")
        self.start_again()
        return None

    def start_again(self) -> None:
        self._clear()
        self.start()

    def ask_to_end(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def end(self, by: float) -> None:
        """Wait for its end until then, and no longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, by - time.monotonic()))
        self._clear()

    def _clear(self) -> None:
        """Nothing of its process group stays behind, and nothing that it said is lost."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5)

    def _pass_on(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.say(line.rstrip())


def commands(folder: Path, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """The processes of a Procfile, `name: command` in each line."""
    parts: dict[str, list[str]] = {}
    for line in (folder / "Procfile").read_text().splitlines():
        name, colon, command = line.partition(":")
        if colon and not line.startswith("#"):
            parts[name.strip()] = shlex.split(string.Template(command).substitute(environment))
    return parts


def run(folder: Path, environment: Mapping[str, str]) -> int:
    """Run the parts of an example; gives the exit code of the one that ended it."""
    parts: list[Part] = []
    try:
        for name, command in commands(folder, environment).items():
            parts.append(Part(name, command, folder, environment))
        while True:
            for part in parts:
                code = part.look()
                if code == 0 and part is not parts[-1]:
                    part.start_again()
                elif code is not None:
                    return code
            time.sleep(0.05)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what is asked to end, ends
        for part in parts:
            part.ask_to_end()
        by = time.monotonic() + GRACE
        for part in parts:
            part.end(by)


def interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def main() -> int:
    names = sorted(path.parent.name for path in HERE.glob("*/Procfile"))
    if len(sys.argv) != 2 or sys.argv[1] not in names:
        print(f"Which example? One of: {', '.join(names)}", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, interrupt)
    with tempfile.TemporaryDirectory(prefix=f"{sys.argv[1]}-", ignore_cleanup_errors=True) as data:
        given = {
            "DATA": data,  # where an example keeps what it makes
            "PENSTOCK_URL": f"sqlite:{data}/penstock.db",
            "PORT": "8000",
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": data,  # what is killed cannot clear up behind itself
        }
        return run(HERE / sys.argv[1], given)


if __name__ == "__main__":
    sys.exit(main())
