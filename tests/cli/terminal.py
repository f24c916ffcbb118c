"""A command on a pseudo-terminal whose screen a test can read and type at."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.conftest import ROOT, die_with_parent

ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")

#: Seconds that a text may take to appear on a busy machine.
TIMEOUT = 30.0


class Terminal:
    """`penstock …` on a terminal of `columns` and `lines`."""

    def __init__(
        self, *arguments: str, environment: dict[str, str], cwd: Path, columns: int = 120, lines: int = 40
    ) -> None:
        main, side = pty.openpty()
        fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.main = main
        self.raw = ""
        inherited = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES", "NO_COLOR")}
        path = f"{ROOT / 'src'}:{ROOT}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *arguments], stdin=side, stdout=side, stderr=side, cwd=cwd,
            env={**inherited, "TERM": "xterm-256color", "PYTHONPATH": path, **environment},
            start_new_session=True, preexec_fn=self._take_terminal,
        )  # fmt: skip
        os.close(side)

    @staticmethod
    def _take_terminal() -> None:
        die_with_parent()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # Ctrl-C is a signal only at a controlling terminal

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.main)

    @property
    def text(self) -> str:
        """Everything that was printed, without escape sequences."""
        return ESCAPES.sub("", self.raw)

    def read(self, seconds: float = 0.1) -> None:
        """Read available output."""
        if select.select([self.main], [], [], seconds)[0]:
            with contextlib.suppress(OSError):  # the other side is closed
                self.raw += os.read(self.main, 65536).decode("utf-8", "replace")

    def until(self, *texts: str) -> None:
        """Wait until all of these texts are printed, from here on."""
        start = len(self.text)
        end = time.monotonic() + TIMEOUT
        while not all(text in self.text[start:] for text in texts):
            assert time.monotonic() < end, f"not shown: {texts} in {self.text[start:]!r}"
            assert self.process.poll() is None or self.read(0) is None
            self.read()

    @property
    def screen(self) -> list[str]:
        """The lines of the last whole frame of a live screen, each of which begins at the top left corner."""
        frames = self.raw.split("\x1b[H")[1:-1]
        return [line.rstrip() for line in ESCAPES.sub("", frames[-1]).splitlines()] if frames else []

    def until_screen(self, shown: Callable[[list[str]], bool]) -> list[str]:
        """Wait for a frame that is as wanted, and return its lines."""
        end = time.monotonic() + TIMEOUT
        while not shown(self.screen):
            assert time.monotonic() < end, "not shown:\n" + "\n".join(self.screen)
            assert self.process.poll() is None, self.text
            self.read()
        return self.screen

    def type(self, text: str) -> None:
        os.write(self.main, text.encode())

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def wait_for_exit(self) -> int:
        """Wait for the process to exit; returns its exit code."""
        end = time.monotonic() + TIMEOUT
        while self.process.poll() is None:
            assert time.monotonic() < end, f"it did not end: {self.text!r}"
            self.read()
        self.read()
        return self.process.returncode
