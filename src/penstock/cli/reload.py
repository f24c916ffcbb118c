"""`--reload`: detection of changed source files, and restart of the whole command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from typing import NoReturn

from penstock.app_loader import SKIPPED_DIRECTORIES, loaded_files, modification_times

__all__ = ["ChangeDetector", "restart"]


class ChangeDetector:
    """Modification times of the project's files: those of loaded modules, or with `everything` all of them."""

    def __init__(self, everything: bool = False) -> None:
        self._everything = everything
        self._last_times = self._times()

    def poll(self) -> set[str]:
        """Return the files that changed since the last call.

        With `everything` that includes new ones; else a module that was first loaded since does not count.
        """
        now = self._times()
        before, self._last_times = self._last_times, now
        if not self._everything:
            return {path for path in before if now.get(path) != before[path]}
        return {path for path in before.keys() | now.keys() if now.get(path) != before.get(path)}

    def wait(self) -> None:
        """Block until a file has changed."""
        while not self.poll():
            time.sleep(0.5)

    def _times(self) -> dict[str, int]:
        return modification_times(project_files() if self._everything else loaded_files())


def project_files() -> Iterator[str]:
    """Yield every Python file below this directory."""
    for directory, names, files in os.walk(os.getcwd()):
        names[:] = [name for name in names if name not in SKIPPED_DIRECTORIES and not name.startswith(".")]
        yield from (os.path.join(directory, name) for name in files if name.endswith(".py"))


def restart() -> NoReturn:
    """Replace this process by the same command, so that everything is imported again."""
    # With -m alone, Python imports from the current directory even if the command did not.
    flags = [] if os.getcwd() in sys.path else ["-P"]
    os.execv(sys.executable, [sys.executable, *flags, "-m", "penstock", *sys.argv[1:]])
