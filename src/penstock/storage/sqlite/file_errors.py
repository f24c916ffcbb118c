"""Errors about the file: the error of SQLite or of the system becomes one line with the cause and the way out.

`StorageUnavailable` is for trouble that ends by itself or with more room on the disk, so workers wait for
it. `StorageUnusable` is for trouble that an operator must end, so a worker exits.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from typing import NamedTuple

from penstock.errors import StorageError, StorageUnavailable, StorageUnusable
from penstock.storage.sqlite.file_access import user_name

__all__ = [
    "APPLICATION_ID",
    "BUSY",
    "FileIdentity",
    "create_file",
    "error_code",
    "find_obstacle",
    "is_full",
    "locked",
    "refuse_other_file",
    "refuse_other_program",
    "translate",
]

#: Marks a database as one of Penstock (`PRAGMA application_id`): the letters "PNSK".
APPLICATION_ID = 0x504E534B

#: The primary result codes of SQLite for a lock that another connection holds.
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

#: With less free space (bytes) than this, a failed write counts as caused by a full disk.
FULL_BELOW = 100_000

OWN_FILE = "Penstock needs a file of its own: give another name"


class FileIdentity(NamedTuple):
    """Device and inode of a file: two files of one name differ in them."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: str) -> FileIdentity:
        """Return the identity of the file that this path names now."""
        status = os.stat(path)
        return cls(status.st_dev, status.st_ino)


def create_file(path: str) -> None:
    """Create a file that only its owner may read; an existing one keeps its mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageUnavailable(f"cannot create {path}: the disk is full ({error.strerror})") from error
        why = find_obstacle(path) or error.strerror
        raise StorageUnusable(f"cannot create {path}: {why}") from error


def refuse_other_program(db: sqlite3.Connection, path: str) -> None:
    """Raise `StorageUnusable` if the database has tables and is not one of Penstock."""
    # The table is read first: a new file gets its tables and its id in one transaction of another process.
    table = db.execute("SELECT name FROM sqlite_schema LIMIT 1").fetchone()
    [id] = db.execute("PRAGMA application_id").fetchone()
    if id == APPLICATION_ID or (id == 0 and table is None):
        return
    content = f"it has the table {table[0]}" if table else f"its application_id is {id}"
    raise StorageUnusable(f"{path} is the database of another program ({content}); {OWN_FILE}")


def refuse_other_file(path: str, known: FileIdentity) -> None:
    """Raise `StorageUnusable` if the path does not name the file that this process has opened."""
    try:
        change = None if FileIdentity.of(path) == known else "replaced by another file"
    except (FileNotFoundError, NotADirectoryError):
        change = "deleted"
    except OSError:
        return  # whether the file exists cannot be seen in a directory that this user may not search
    if change:
        raise StorageUnusable(
            f"{path} was {change} while it was open: jobs put into the old file would be lost, so they are refused;"
            " restart this process"
        )


def error_code(error: BaseException) -> int:
    """Return the primary result code of an error of SQLite, 0 for other errors."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_full(error: BaseException) -> bool:
    """Return whether a write failed because a file could not grow."""
    return getattr(error, "sqlite_errorcode", 0) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE)


def locked(path: str, seconds: float) -> StorageUnavailable:
    """Return the error for a file that another process has locked for this long."""
    error = StorageUnavailable(f"{path} is locked by another process: waited {seconds:g} s for it")
    error.uncertain = False
    return error


def translate(error: Exception, path: str) -> Exception:
    """Return the Penstock error for one of SQLite or of a damaged record; any other error unchanged."""
    if isinstance(error, TypeError | LookupError):
        # The column has a type Penstock never writes: the file was edited or damaged.
        ours = StorageError(f"{path} holds a record that cannot be read ({error}); `penstock doctor` looks for damage")
    elif isinstance(error, sqlite3.Error):
        ours = _explain(error, path)
        if isinstance(ours, StorageUnavailable) and error_code(error) != sqlite3.SQLITE_IOERR:
            ours.uncertain = False  # the transaction was rolled back
    else:
        return error
    ours.__cause__ = error
    return ours


def _explain(error: sqlite3.Error, path: str) -> StorageError:
    match error_code(error):
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return StorageUnavailable(f"{path} is locked by another process ({error})")
        case sqlite3.SQLITE_FULL:
            return _full(error, path)
        case sqlite3.SQLITE_IOERR:
            if _free_space(path) < FULL_BELOW:
                return _full(error, path)
            return StorageUnavailable(
                f"{path} cannot be read or written ({error}); look at the disk, its quota and the limit of file sizes"
            )
        case sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_PERM | sqlite3.SQLITE_AUTH:
            obstacle = find_obstacle(path)
            if obstacle is None:  # such as too many open files
                return StorageUnavailable(f"{path} cannot be opened ({error})")
            return StorageUnusable(f"{path} cannot be opened: {obstacle}")
        case sqlite3.SQLITE_READONLY:
            return StorageUnusable(f"{path} cannot be written: {find_obstacle(path) or f'it is read-only ({error})'}")
        case sqlite3.SQLITE_NOTADB:
            return StorageUnusable(f"{path} is not an SQLite database ({error}); {OWN_FILE}, or restore a copy")
        case sqlite3.SQLITE_CORRUPT:
            return StorageUnusable(
                f"{path} is damaged ({error}): stop everything that uses it and copy it; `penstock export` writes the"
                f" jobs that can be read, `sqlite3 {path} .recover | sqlite3 new.db` recovers more"
            )
        case _:
            return StorageError(f"{path} gave an error ({error})")


def _full(error: sqlite3.Error, path: str) -> StorageError:
    return StorageUnavailable(
        f"{path} cannot grow: the disk is full ({error}); make room, and everything continues by itself"
    )


def _free_space(path: str) -> float:
    try:
        room = os.statvfs(os.path.dirname(os.path.abspath(path)))
    except OSError:
        return FULL_BELOW
    return room.f_bavail * room.f_frsize


def find_obstacle(path: str) -> str | None:
    """Return why this process may not use a file, and what to change; None if it may, as far as can be seen."""
    path = os.path.abspath(path)
    directory = os.path.dirname(path)
    for parent in _parents(directory):
        if not os.path.isdir(parent):
            return f"there is no directory {parent}; create it"
        if not _may(parent, os.X_OK):
            return _refusal(parent, parent)
    if os.path.isdir(path):
        return "it is a directory; give the name of a file"
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return "its file system is mounted read-only; mount it read-write, or use another directory"
    for file in (path, f"{path}-wal", f"{path}-shm"):
        if os.path.exists(file) and not _may(file, os.R_OK | os.W_OK):
            return _refusal(file, "it" if file == path else file)
    if not _may(directory, os.W_OK):
        reason = "SQLite keeps a -wal and a -shm file beside it, but " if os.path.exists(path) else ""
        return reason + _refusal(directory, directory)
    return None


def _parents(directory: str) -> list[str]:
    """Return a directory and those above it, from the root on."""
    found = [directory]
    while (above := os.path.dirname(found[-1])) != found[-1]:
        found.append(above)
    return found[::-1]


def _may(path: str, access: int) -> bool:
    return os.access(path, access, effective_ids=os.access in os.supports_effective_ids)


def _refusal(path: str, name: str) -> str:
    """Return the owner of a file or directory and the user of this process, with the change that would help."""
    status, user = os.stat(path), os.geteuid()
    owner, mode = user_name(status.st_uid), status.st_mode & 0o777
    fix = f"chmod u+rwX {path}" if status.st_uid == user else f"run it as {owner}, or chown {path}"
    return f"{name} belongs to {owner} (mode {mode:o}), this process runs as {user_name(user)}; {fix}"
