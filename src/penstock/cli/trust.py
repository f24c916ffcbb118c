"""The check whose files and directories these are, before a command imports code or reads settings from them.

A path is trusted if it belongs to the current user or to root, and if other users may not write to it. Its group may
write to it only if that is the private group of the user: the primary group, with the number of the user and without
other members, as most Linux systems make it (and then set umask 002).
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

__all__ = ["distrust", "distrust_module", "distrust_project"]


def distrust(path: Path, *, passed: bool = False) -> str | None:
    """Return why a file or directory is not trusted, None if it is.

    With `passed` nothing of a directory is used but the entry below it. Then a sticky one, such as /tmp, may be
    writable: other users cannot rename or replace entries of others in it.
    """
    try:
        status = path.stat()
    except OSError as error:
        return f"{path} cannot be looked at ({error.strerror})"
    if status.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {user_name(status.st_uid)}"
    if passed and status.st_mode & stat.S_ISVTX:
        return None
    mode = stat.S_IMODE(status.st_mode)
    if mode & stat.S_IWOTH:
        return f"all users may write to {path} (mode {mode:o})"
    if mode & stat.S_IWGRP and not is_private_group(status.st_gid):
        return f"the group {group_name(status.st_gid)} may write to {path} (mode {mode:o})"
    return None


def distrust_project(path: Path, here: Path) -> str | None:
    """Return why the pyproject.toml at `path`, in `here` or a directory above it, is not trusted, None if it is.

    Each directory from `here` to that of the file counts, because modules are imported from both ends.
    """
    if reason := distrust(path):
        return reason
    between = [directory for directory in (here, *here.parents) if directory.is_relative_to(path.parent)]
    for directory in between:
        if reason := distrust(directory, passed=directory not in (here, path.parent)):
            return reason
    return None


def distrust_module(directory: Path, name: str) -> str | None:
    """Return why a module below a directory, or a package around it, is not trusted; None if it is, or is elsewhere."""
    for part in name.split("."):
        directory /= part
        for path in (directory, directory / "__init__.py", directory.with_name(f"{part}.py")):
            if path.exists() and (reason := distrust(path)):
                return reason
    return None


def is_private_group(gid: int) -> bool:
    """Return whether a group is the current user's alone."""
    if not gid == os.getegid() == os.geteuid():
        return False
    try:
        members = grp.getgrgid(gid).gr_mem
    except KeyError:
        return True
    return all(member == user_name(os.geteuid()) for member in members)


def user_name(uid: int) -> str:
    """Return the name of a user, or its number if it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return the name of a group, or its number if it has none."""
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)
