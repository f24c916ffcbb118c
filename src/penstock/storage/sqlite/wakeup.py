"""Wake-ups between processes: Unix datagrams to sockets in a directory next to the database.

The file names only the socket, and each process looks for it in directories of its own choice that belong to its
user. So a row that other software wrote makes no process send anything elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import os
import re
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable

from penstock.storage.sqlite.transaction import Wake

__all__ = ["ForeignDirectory", "WakeupSocket", "find_foreign_directory", "send_wakeups", "socket_directories"]

#: The path of a socket must fit into 108 bytes with its NUL on Linux, 104 elsewhere.
MAX_PATH = 100

#: The length of the longest name of a socket: the digits of a process id, a hyphen and 12 others.
MAX_NAME = 24

#: How many sockets a process looks at when it opens its own.
MAX_LOOKS = 1000

#: The names of sockets, of processes without one, and of waiters. The tables hold no others, unless other software
#: wrote them.
_NAME = re.compile(r"[0-9]{1,11}-[0-9a-f]{12}|none:[0-9a-f]{16}")
_WAITER = re.compile(r"[0-9a-f]{16}")

#: Bytes of waiters' names in one datagram.
MAX_DATAGRAM = 8_000


class ForeignDirectory(PermissionError):
    """Raised if the directory of the sockets belongs to another user, or is no directory."""


def socket_directories(path: str) -> list[str]:
    """Return the directories in which a database's sockets may be; the first that can be used is.

    It is next to the database. If that path is too long for a socket, it is in `XDG_RUNTIME_DIR`, which only its
    user can write, or else in the temporary directory.
    """
    real = os.path.realpath(path)
    directory = f"{real}-wake"
    if len(os.fsencode(directory)) + 1 + MAX_NAME <= MAX_PATH:
        return [directory]
    name = f"penstock-{os.getuid()}-{hashlib.blake2b(os.fsencode(real), digest_size=10).hexdigest()}"
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    found = [runtime] if os.path.isabs(runtime) and _is_own(runtime) else []
    below = [os.path.join(parent, name) for parent in (*found, tempfile.gettempdir())]
    return [each for each in below if len(os.fsencode(each)) + 1 + MAX_NAME <= MAX_PATH]


def find_foreign_directory(path: str) -> str:
    """Return the first of the directories of a database's sockets if it is another user's or no directory, else ""."""
    for directory in socket_directories(path)[:1]:
        with contextlib.suppress(OSError):
            status = os.lstat(directory)
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                return directory
    return ""


def _is_own(directory: str) -> bool:
    """Return whether a directory belongs to this user, who alone may use it."""
    try:
        status = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077


class WakeupSocket:
    """The socket of this process: calls `wake` on the event loop with each waiter's name that it receives."""

    def __init__(self, directory: str, loop: asyncio.AbstractEventLoop, wake: Callable[[str], object]) -> None:
        self.loop = loop
        self._wake = wake
        #: The name under which other processes find it.
        self.address = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._directory = directory
        self._path = os.path.join(directory, self.address)
        self._socket = _bind(directory, self._path)
        remove_stale(directory, self._path)
        loop.add_reader(self._socket.fileno(), self._read)

    def _read(self) -> None:
        while True:
            try:
                data = self._socket.recv(MAX_DATAGRAM * 2)
            except (BlockingIOError, InterruptedError):
                return
            except OSError:
                return
            for waiter in data.decode("ascii", "replace").split():
                self._wake(waiter)

    def close(self) -> None:
        """Remove the socket, and the directory with the last one."""
        if not self.loop.is_closed():
            self.loop.remove_reader(self._socket.fileno())
        self._socket.close()
        with contextlib.suppress(OSError):
            os.unlink(self._path)
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)


def _bind(directory: str, address: str) -> socket.socket:
    """Return a bound socket, after a few attempts: another process may delete the directory with its own socket."""
    for left in range(20, -1, -1):
        os.makedirs(directory, 0o700, exist_ok=True)
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            status = os.lstat(directory)
            if status.st_uid != os.getuid() or not stat.S_ISDIR(status.st_mode):
                raise ForeignDirectory(errno.EPERM, "the directory of the sockets belongs to another user", directory)
            if stat.S_IMODE(status.st_mode) & 0o077:
                os.chmod(directory, 0o700)
            bound.setblocking(False)
            bound.bind(address)
            os.chmod(address, 0o600)  # the mode of the directory protects it already; this makes it plain
            return bound
        except FileNotFoundError:
            bound.close()
            if not left:
                raise
        except BaseException:
            bound.close()
            raise
    raise AssertionError("unreachable")


def remove_stale(directory: str, own: str) -> None:
    """Remove the sockets of processes that were killed: a connect to them is refused.

    A process id would not do: a process of another container has one that means nothing here.
    """
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in itertools.islice(entries, MAX_LOOKS):
            is_socket = stat.S_ISSOCK(entry.stat(follow_symlinks=False).st_mode)
            if is_socket and entry.path != own and not _is_alive(entry.path):
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def _is_alive(address: str) -> bool:
    """Return whether a process reads this socket; True if that cannot be known."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(address)
        except ConnectionRefusedError:
            return False
        except OSError:
            return True
    return True


def send_wakeups(
    wakes: Iterable[Wake], own: str, local: Callable[[str], bool], directories: Iterable[str]
) -> list[Wake]:
    """Wake waiters, those of this process by a call, others by a datagram; returns those that are dead.

    A name that is not one of a socket, or of a waiter, is dead.
    """
    dead: list[Wake] = []
    by_address: dict[str, list[Wake]] = {}
    for wake in wakes:
        if wake.address == own:
            if not local(wake.waiter):
                dead.append(wake)
        elif _NAME.fullmatch(wake.address) and _WAITER.fullmatch(wake.waiter):
            by_address.setdefault(wake.address, []).append(wake)
        else:
            dead.append(wake)
    if by_address:
        ours = [each for each in directories if _is_own(each)]
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for address, group in by_address.items():
                waiters = [wake.waiter for wake in group]
                if not any(_send(sender, os.path.join(directory, address), waiters) for directory in ours):
                    dead += group
    return dead


def _send(sender: socket.socket, path: str, waiters: list[str]) -> bool:
    """Send names to one socket; False if its process is gone. A full socket is a success: its process is awake."""
    step = MAX_DATAGRAM // 40
    try:
        for start in range(0, len(waiters), step):
            sender.sendto(" ".join(waiters[start : start + step]).encode(), path)
    except (BlockingIOError, InterruptedError):
        return True
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.EACCES, errno.ENOTDIR)
    return True
