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
    """One process of an example, in a process group of its own, with its output printed line by line."""

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
        self.log(f"started, pid {self._process.pid}")
        self._reader = threading.Thread(target=self._copy_output, args=(self._process,), daemon=True)
        self._reader.start()

    def log(self, line: str) -> None:
        print(f"{self.name:<8} | {line}\n", end="", flush=True)

    def poll(self) -> int | None:
        """Return the exit code if the process has ended; if it was killed, restart it and return None."""
        code = self._process.poll()
        if code is None or code >= 0:
            return code
        self.log(f"killed by {signal.Signals(-code).name}")
        self.restart()
        return None

    def restart(self) -> None:
        self._clear()
        self.start()

    def terminate(self) -> None:
        self._process.send_signal(signal.SIGTERM)

    def wait(self, deadline: float) -> None:
        """Wait for the end of the process until the deadline, then kill it."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, deadline - time.monotonic()))
        self._clear()

    def _clear(self) -> None:
        """Kill the rest of its process group, and print the rest of its output."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._reader.join(timeout=5)

    def _copy_output(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for line in lines:
                self.log(line.rstrip())


def commands(folder: Path, environment: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the commands of a Procfile by name, from its lines `name: command`."""
    parts: dict[str, list[str]] = {}
    for line in (folder / "Procfile").read_text().splitlines():
        name, colon, command = line.partition(":")
        if colon and not line.startswith("#"):
            parts[name.strip()] = shlex.split(string.Template(command).substitute(environment))
    return parts


def run(folder: Path, environment: Mapping[str, str]) -> int:
    """Run the processes of an example; returns the exit code of the one that ended it."""
    parts: list[Part] = []
    try:
        for name, command in commands(folder, environment).items():
            parts.append(Part(name, command, folder, environment))
        while True:
            for part in parts:
                code = part.poll()
                if code == 0 and part is not parts[-1]:
                    part.restart()
                elif code is not None:
                    return code
            time.sleep(0.05)
    except KeyboardInterrupt:
        return 0
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a second Ctrl-C must not end the cleanup
        for part in parts:
            part.terminate()
        deadline = time.monotonic() + GRACE
        for part in parts:
            part.wait(deadline)


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
            "DATA": data,  # the directory for files of the example
            "PENSTOCK_URL": f"sqlite:{data}/penstock.db",
            "PORT": "8000",
            **os.environ,
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
            "PYTHONUNBUFFERED": "1",
            "TMPDIR": data,  # temporary files of killed processes are removed with it
        }
        return run(HERE / sys.argv[1], given)


if __name__ == "__main__":
    sys.exit(main())
