"""SQLite files that this user may not use: the error names the owner, the mode and the way out, and workers end."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from penstock import Penstock, StorageUnavailable, StorageUnusable, Worker, sync
from penstock.model.storage_info import FileInfo
from penstock.storage.sqlite import file_errors

#: A user without rights, for tests that run as root: permissions do not apply to root.
NOBODY = 65534


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory that every user may search and write."""
    made = Path(tempfile.mkdtemp(prefix="p", dir=Path(tempfile.gettempdir()).parent))
    made.chmod(0o777)
    yield made
    made.chmod(0o777)
    shutil.rmtree(made)


@contextlib.contextmanager
def unprivileged() -> Generator[str]:
    """Run as a user to whom permissions apply; yields the user's name."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(NOBODY)
    try:
        yield pwd.getpwuid(os.geteuid()).pw_name
    finally:
        if user == 0:
            os.seteuid(0)


async def app_with_a_job(directory: Path) -> Penstock:
    """Make a file with one job, and return a closed app with a handler for it."""
    app = Penstock(f"sqlite:{directory / 'jobs.db'}")
    app.listen("q", lambda payload: payload)
    async with app:
        await app.queue("q").enqueue(1, id="a")
    return app


async def test_a_file_that_this_user_may_not_read_names_owner_and_mode(directory: Path) -> None:
    """Opening it raises `StorageUnusable`: whose file it is, its mode, who this process is, and what to change."""
    app = await app_with_a_job(directory)
    path = directory / "jobs.db"
    path.chmod(0o000)
    owner = pwd.getpwuid(path.stat().st_uid).pw_name
    with unprivileged() as user, pytest.raises(StorageUnusable) as caught:
        await app.open()
    assert f"jobs.db cannot be opened: it belongs to {owner} (mode 0), this process runs as {user}; " in str(
        caught.value
    )
    assert "chown" in str(caught.value) or "chmod" in str(caught.value)


async def test_a_worker_on_a_read_only_file_ends_with_the_reason(directory: Path) -> None:
    """`Worker.run` raises `StorageUnusable` on a file that it may only read; the jobs can be read."""
    app = await app_with_a_job(directory)
    path = directory / "jobs.db"
    path.chmod(0o444)
    with unprivileged():
        async with app:
            assert await app.queue("q").status("a") is not None
            with pytest.raises(StorageUnusable, match=r"jobs\.db cannot be written: .*\(mode 444\)"):
                await Worker(app, lease=1).run()
            with pytest.raises(StorageUnusable, match="cannot be written"):
                await app.queue("q").enqueue(2)


async def test_a_directory_without_write_permission_is_named(directory: Path) -> None:
    """A file in a directory that this user may not write raises an error that names the -wal and -shm files."""
    app = await app_with_a_job(directory)
    (directory / "jobs.db").chmod(0o666)
    os.chmod(directory, 0o555)
    with unprivileged(), pytest.raises(StorageUnusable, match=rf"-shm file beside it, but {directory} belongs to"):
        await app.open()


def test_a_file_cannot_be_created_in_a_directory_of_another_user(directory: Path) -> None:
    """Creating a file where this user may not write raises an error that names the directory, also in a sync app."""
    directory.chmod(0o555)
    app = sync.Penstock(f"sqlite:{directory / 'jobs.db'}")
    with unprivileged(), pytest.raises(StorageUnusable, match=rf"cannot create .*jobs\.db: {directory} belongs to"):
        app.queue("q").enqueue(1)
    app.close()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nowhere/jobs.db", "there is no directory .*/nowhere; create it"),
        ("taken", "taken cannot be opened: it is a directory; give the name of a file"),
    ],
)
async def test_a_wrong_path_is_named(tmp_path: Path, name: str, expected: str) -> None:
    """A missing directory, and a directory in place of the file, are errors that name them."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(StorageUnusable, match=expected):
        await Penstock(f"sqlite:{tmp_path / name}").open()


def test_a_file_that_cannot_be_opened_for_another_reason_is_waited_for(tmp_path: Path) -> None:
    """Where permissions are not the reason, such as with too many open files, the error is `StorageUnavailable`."""
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    assert type(file_errors.translate(error, str(tmp_path / "jobs.db"))) is StorageUnavailable


async def test_inspect_names_the_obstacle_of_a_read_only_file(directory: Path) -> None:
    """inspect of a file that this user may only read answers the reason."""
    app = await app_with_a_job(directory)
    (directory / "jobs.db").chmod(0o444)
    with unprivileged():
        async with app:
            info = await app.storage.inspect()  # type: ignore[attr-defined]
    assert isinstance(info, FileInfo)
    assert "(mode 444)" in info.obstacle
