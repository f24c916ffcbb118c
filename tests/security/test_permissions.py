"""File permissions: only the user can read Penstock's files, whatever the umask."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Penstock, Worker, sync


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    """A umask that allows everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name: for long paths, sockets are in another directory."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        yield Path(directory)


def modes(directory: Path) -> dict[str, int]:
    """Return the permissions of a directory and everything in it."""
    found = [directory, *directory.rglob("*")]
    return {path.relative_to(directory).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in found}


async def test_the_file_its_log_and_sockets_are_private(tmp_path: Path) -> None:
    """The database, its -wal and -shm, and the wake-up sockets are 0600, their directory 0700."""
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    ran = asyncio.Event()
    app.listen("q", lambda payload: ran.set() if payload else None)  # type: ignore[arg-type]
    async with app, Worker(app):
        await app.queue("q").enqueue(0, id="a")
        await app.queue("q").wait("a", timeout=30)
        found = modes(tmp_path)
        sockets = {name for name in found if name.startswith("jobs.db-wake/")}
    assert sockets
    expected = dict.fromkeys(["jobs.db", "jobs.db-wal", "jobs.db-shm", *sockets], 0o600)
    assert {name: mode for name, mode in found.items() if name != "."} == {**expected, "jobs.db-wake": 0o700}


async def test_a_new_directory_is_private(tmp_path: Path) -> None:
    """`file:DIRECTORY` makes a directory with the mode 0700."""
    async with Penstock(f"file:{tmp_path / 'queue'}") as app:
        await app.queue("q").enqueue(1)
    assert modes(tmp_path / "queue") == {".": 0o700, "penstock.db": 0o600}


def test_files_of_a_sync_app_are_private(tmp_path: Path) -> None:
    """Files of a sync app have the modes 0600 and 0700."""
    with sync.Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        app.queue("q").enqueue(1)
        found = modes(tmp_path)
    assert {mode for name, mode in found.items() if name != "."} <= {0o600, 0o700}


async def test_an_open_wake_up_directory_is_made_private(tmp_path: Path) -> None:
    """An existing directory of wake-up sockets is set to 0700 before a socket is made in it."""
    (tmp_path / "jobs.db-wake").mkdir(0o777)
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    async with app:
        reserved = asyncio.create_task(app.queue("q").reserve(wait=30))
        while not list((tmp_path / "jobs.db-wake").iterdir()):  # noqa: ASYNC110 - until it waits
            await asyncio.sleep(0.01)
        assert modes(tmp_path)["jobs.db-wake"] == 0o700
        await app.queue("q").enqueue(1)
        assert await reserved


async def test_a_link_instead_of_the_wake_up_directory_is_not_followed(tmp_path: Path) -> None:
    """No socket is made in the target of a symbolic link."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "jobs.db-wake").symlink_to(elsewhere)
    async with Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        await app.queue("q").enqueue(1, delay=3600)
        with contextlib.suppress(OSError):
            await app.queue("q").reserve(wait=0.05)
        assert list(elsewhere.iterdir()) == []
