"""What Penstock leaves on a disk belongs to its user alone, whatever the umask."""

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
def careless() -> Iterator[None]:
    """A user who lets everybody do everything."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A directory with a short name: the sockets beside a file with a long one are elsewhere."""
    with tempfile.TemporaryDirectory(prefix="penstock-") as directory:
        yield Path(directory)


def modes(directory: Path) -> dict[str, int]:
    """The permissions of all that is in a directory."""
    found = [directory, *directory.rglob("*")]
    return {path.relative_to(directory).as_posix(): stat.S_IMODE(path.lstat().st_mode) for path in found}


async def test_the_file_and_all_beside_it(tmp_path: Path) -> None:
    """The database, its log and shared memory, the directory of wake-ups and the sockets in it are 0600 or 0700."""
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


async def test_a_directory_that_is_made(tmp_path: Path) -> None:
    """`file:DIRECTORY` makes a directory that is the user's own."""
    async with Penstock(f"file:{tmp_path / 'queue'}") as app:
        await app.queue("q").enqueue(1)
    assert modes(tmp_path / "queue") == {".": 0o700, "penstock.db": 0o600}


def test_without_await(tmp_path: Path) -> None:
    """The sync app is as careful."""
    with sync.Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        app.queue("q").enqueue(1)
        found = modes(tmp_path)
    assert {mode for name, mode in found.items() if name != "."} <= {0o600, 0o700}


async def test_a_directory_of_wake_ups_that_was_open(tmp_path: Path) -> None:
    """One that is ours is closed to others before a socket is put there."""
    (tmp_path / "jobs.db-wake").mkdir(0o777)
    app = Penstock(f"sqlite:{tmp_path / 'jobs.db'}")
    async with app:
        reserved = asyncio.create_task(app.queue("q").reserve(wait=30))
        while not list((tmp_path / "jobs.db-wake").iterdir()):  # noqa: ASYNC110 - until it waits
            await asyncio.sleep(0.01)
        assert modes(tmp_path)["jobs.db-wake"] == 0o700
        await app.queue("q").enqueue(1)
        assert await reserved


async def test_a_directory_of_wake_ups_that_is_a_link(tmp_path: Path) -> None:
    """A link in its place is not followed."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "jobs.db-wake").symlink_to(elsewhere)
    async with Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        await app.queue("q").enqueue(1, delay=3600)
        with contextlib.suppress(OSError):
            await app.queue("q").reserve(wait=0.05)
        assert list(elsewhere.iterdir()) == []
