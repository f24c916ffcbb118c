"""`--reload`: detection of changed source files, and restart of the whole command."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

__all__ = ["ChangeDetector", "restart"]

#: Directories without sources of the project.
SKIPPED_DIRECTORIES = {"node_modules", "__pycache__", "site-packages", "venv"}


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
        times: dict[str, int] = {}
        for path in project_files() if self._everything else loaded_files():
            try:
                times[path] = os.stat(path).st_mtime_ns
            except OSError:
                times[path] = 0
        return times


def loaded_files() -> set[str]:
    """Return the files of loaded modules below this directory, without installed packages."""
    here, found = os.getcwd() + os.sep, set[str]()
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if path and os.path.abspath(path).startswith(here) and not SKIPPED_DIRECTORIES & set(Path(path).parts):
            found.add(os.path.abspath(path))
    return found


def project_files() -> Iterator[str]:
    """Yield every Python file below this directory."""
    for directory, names, files in os.walk(os.getcwd()):
        names[:] = [name for name in names if name not in SKIPPED_DIRECTORIES and not name.startswith(".")]
        yield from (os.path.join(directory, name) for name in files if name.endswith(".py"))


def restart() -> NoReturn:
    """Replace this process by the same command, so that everything is imported again."""
    os.execv(sys.executable, [sys.executable, "-m", "penstock", *sys.argv[1:]])
