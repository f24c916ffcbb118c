"""Access of other users to the file: its owner and permissions, and those of its directory."""

from __future__ import annotations

import logging
import os
import pwd
import stat

__all__ = ["find_exposures", "user_name", "warn_of_exposures", "warn_once"]

log = logging.getLogger("penstock.storage")

#: Warnings that this process has logged.
_warned: set[str] = set()


def warn_once(text: str) -> None:
    """Log a warning, unless this process has logged it before."""
    if text not in _warned:
        _warned.add(text)
        log.warning("%s", text)


def warn_of_exposures(path: str) -> None:
    """Log a warning, once per process, if another user owns the file or anyone on this machine may use it."""
    exposures = find_exposures(path)
    if exposures:
        warn_once(f"{'; '.join(exposures)}: use a file and a directory of your own, with the modes 600 and 700")


def find_exposures(path: str) -> list[str]:
    """Return how users other than this one and root can read or change the file; groups are not considered.

    Its -wal and -shm count as the file does: they hold the newest jobs.
    """
    found: list[str] = []
    path = os.path.abspath(path)
    for file in (path, f"{path}-wal", f"{path}-shm"):
        try:
            status = os.stat(file)
        except OSError:
            continue
        if status.st_uid not in (os.geteuid(), 0):
            found.append(f"{file} belongs to {user_name(status.st_uid)}, who can read and change all jobs")
        elif status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
            what = "read and change" if status.st_mode & stat.S_IWOTH else "read"
            found.append(f"{file} has the mode {status.st_mode & 0o777:o}, so every user can {what} all jobs")
    directory = os.path.dirname(path)
    try:
        status = os.stat(directory)
    except OSError:
        return found
    if status.st_uid not in (os.geteuid(), 0):
        found.append(f"its directory {directory} belongs to {user_name(status.st_uid)}, who can replace the file")
    elif status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        mode = status.st_mode & 0o777
        found.append(f"its directory {directory} has the mode {mode:o}, so every user can replace the file")
    return found


def user_name(id: int) -> str:
    """Return the name of a user, or "user" and the number."""
    try:
        return pwd.getpwuid(id).pw_name
    except KeyError:
        return f"user {id}"
