"""Wake-ups between processes: unix datagrams to sockets in a directory beside the database."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import os
import secrets
import socket
import stat
import tempfile
from collections.abc import Callable, Iterable

from penstock.storage.sqlite.transaction import Wake

__all__ = ["WakeupSocket", "send_wakeups", "socket_directory"]

#: A socket's path must fit into 108 bytes with its NUL on Linux, 104 elsewhere.
MAX_PATH = 100

#: One datagram holds as many names as fit in here.
MAX_DATAGRAM = 8_000


def socket_directory(path: str, name: str) -> str:
    """Where the sockets of a database are: beside it, or, if that path is too long, under the temporary directory."""
    real = os.path.realpath(path)
    beside = f"{real}-wake"
    if len(os.fsencode(os.path.join(beside, name))) <= MAX_PATH:
        return beside
    digest = hashlib.blake2b(os.fsencode(real), digest_size=10).hexdigest()
    return os.path.join(tempfile.gettempdir(), f"penstock-{os.getuid()}-{digest}")


class WakeupSocket:
    """A process's own socket: reads names of waiters, and hands each to `deliver` on the event loop."""

    def __init__(self, path: str, loop: asyncio.AbstractEventLoop, deliver: Callable[[str], object]) -> None:
        self.loop = loop
        self._deliver = deliver
        name = f"{os.getpid()}-{secrets.token_hex(6)}"
        self._directory = socket_directory(path, name)
        self.address = os.path.join(self._directory, name)
        self._socket = _bind(self._directory, self.address)
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
                self._deliver(waiter)

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
    """A bound socket; the directory may vanish with another's last socket, so this tries a few times."""
    for left in range(20, -1, -1):
        os.makedirs(directory, 0o700, exist_ok=True)
        box = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            about = os.lstat(directory)
            if about.st_uid != os.getuid() or not stat.S_ISDIR(about.st_mode):
                raise PermissionError(errno.EPERM, "the directory of the sockets belongs to somebody else", directory)
            if stat.S_IMODE(about.st_mode) & 0o077:
                os.chmod(directory, 0o700)
            box.setblocking(False)
            box.bind(address)
            os.chmod(address, 0o600)  # nobody else gets this far; it looks better too
            return box
        except FileNotFoundError:
            box.close()
            if not left:
                raise
        except BaseException:
            box.close()
            raise
    raise AssertionError("unreachable")


def send_wakeups(wakes: Iterable[Wake], own: str, local: Callable[[str], bool]) -> list[Wake]:
    """Wake everybody named: those of this process by a call, others by datagram. Answers the dead ones."""
    dead: list[Wake] = []
    letters: dict[str, list[Wake]] = {}
    for wake in wakes:
        if wake.path != own:
            letters.setdefault(wake.path, []).append(wake)
        elif not local(wake.waiter):
            dead.append(wake)
    if letters:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)
            for path, letter in letters.items():
                if not _send(sender, path, [wake.waiter for wake in letter]):
                    dead += letter
    return dead


def _send(sender: socket.socket, path: str, waiters: list[str]) -> bool:
    """One datagram; a full mailbox counts as delivered, since its owner is awake then."""
    step = MAX_DATAGRAM // 40
    try:
        for start in range(0, len(waiters), step):
            sender.sendto(" ".join(waiters[start : start + step]).encode(), path)
    except (BlockingIOError, InterruptedError):
        return True
    except OSError as error:
        return error.errno not in (errno.ENOENT, errno.ECONNREFUSED, errno.ENOTSOCK, errno.EACCES, errno.ENOTDIR)
    return True
