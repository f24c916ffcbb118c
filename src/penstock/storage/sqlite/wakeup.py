"""Wake-ups between processes: Unix datagrams to sockets in a directory next to the database."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import itertools
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable

from penstock.storage.sqlite.transaction import Wake

__all__ = ["WakeupSocket", "send_wakeups", "socket_directory"]

#: The path of a socket must fit into 108 bytes with its NUL on Linux, 104 elsewhere.
MAX_PATH = 100

#: How many sockets a process looks at when it opens its own.
MAX_LOOKS = 1000

#: Bytes of waiters' names in one datagram.
MAX_DATAGRAM = 8_000


def socket_directory(path: str, name: str) -> str:
    """Return the directory of a database's sockets: next to it, or below the temporary one if that path is too long."""
    real = os.path.realpath(path)
    directory = f"{real}-wake"
    if len(os.fsencode(os.path.join(directory, name))) <= MAX_PATH:
        return directory
    digest = hashlib.blake2b(os.fsencode(real), digest_size=10).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}-{digest}")


class WakeupSocket:
    """The socket of this process: calls `wake` on the event loop with each waiter's name that it receives."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, wake: Callable[[str], object]) -> None:
        self.loop = loop
        self._wake = wake
        name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._directory = socket_directory(path, name)
        self.address = os.path.join(self._directory, name)
        self._socket = _bind(self._directory, self.address)
        remove_stale(self._directory, self.address)
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
            os.unlink(self.address)
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
                raise PermissionError(errno.EPERM, "the directory of the sockets belongs to another user", directory)
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


def send_wakeups(wakes: Iterable[Wake], own: str, local: Callable[[str], bool]) -> list[Wake]:
    """Wake waiters, those of this process by a call, others by a datagram; returns those that are dead."""
    dead: list[Wake] = []
    by_path: dict[str, list[Wake]] = {}
    for wake in wakes:
        if wake.path != own:
            by_path.setdefault(wake.path, []).append(wake)
        elif not local(wake.waiter):
            dead.append(wake)
    if by_path:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path, group in by_path.items():
                if not _send(sender, path, [wake.waiter for wake in group]):
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
