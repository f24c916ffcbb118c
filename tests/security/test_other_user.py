"""Another user of the machine, who prepares files, links, directories and sockets, or writes into the database."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import Penstock, sync
from penstock.model.storage_info import FileInfo, Inspectable
from penstock.ops.doctor import Level, check_file
from penstock.storage.sqlite import file_access
from penstock.storage.sqlite.wakeup import socket_directories
from tests.support import HOUR, eventually

#: The user "nobody".
OTHER = 65534

if os.geteuid() != 0:
    if os.environ.get("CI"):
        raise RuntimeError("these tests need a second user: run them as root")
    pytest.skip("a second user needs root", allow_module_level=True)


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory with a short name that every user can write, as a shared group directory is to its group."""
    with tempfile.TemporaryDirectory(prefix="p", dir="/tmp") as directory:
        os.chmod(directory, 0o777)
        yield Path(directory)


@pytest.fixture(autouse=True)
def no_warnings_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warnings are logged again in each test."""
    monkeypatch.setattr(file_access, "_warned", set[str]())


def as_other(work: Callable[[], object]) -> None:
    """Call a function in a process of the other user."""
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            work()
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def make_file(path: Path, mode: int = 0o666) -> None:
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))
    os.chmod(path, mode)


def export(url: str, path: Path) -> None:
    subprocess.run([sys.executable, "-m", "penstock", "export", "--url", url, "-o", path], check=True, timeout=60)


# exports ------------------------------------------------------------------------------------------


def test_an_export_is_not_written_through_files_that_were_there_before(place: Path, tmp_path: Path) -> None:
    """A `.part` file, a link and an old export of the other user: the export is a new file of its owner alone."""
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    with sync.Penstock(url) as app:
        app.queue("q").enqueue("a payload")
    target, precious = place / "out.jsonl", tmp_path / "precious"
    precious.write_text("mine")

    def plant() -> None:
        make_file(target)
        make_file(place / "out.jsonl.part")
        os.symlink(precious, place / "link.jsonl")

    as_other(plant)
    planted = os.open(target, os.O_RDONLY)
    for path in (target, place / "link.jsonl"):
        export(url, path)
        status = path.lstat()
        assert (stat.S_ISREG(status.st_mode), stat.S_IMODE(status.st_mode), status.st_uid) == (True, 0o600, 0)
        assert "a payload" in path.read_text()
    assert os.read(planted, 10) == b""
    os.close(planted)
    assert precious.read_text() == "mine"
    assert (place / "out.jsonl.part").read_bytes() == b""
    assert sorted(os.listdir(place)) == ["link.jsonl", "out.jsonl", "out.jsonl.part"]


def test_an_export_into_a_pipe_of_another_user_is_refused(place: Path, tmp_path: Path) -> None:
    """The other user would read the jobs from the pipe; a device such as /dev/null is written, and stays a device."""
    url = f"sqlite:{tmp_path / 'jobs.db'}"
    with sync.Penstock(url) as app:
        app.queue("q").enqueue(1)
    as_other(lambda: os.mkfifo(place / "out.jsonl", 0o666))
    command = [sys.executable, "-m", "penstock", "export", "--url", url, "-o"]
    refused = subprocess.run([*command, place / "out.jsonl"], capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "of another user" in refused.stderr
    subprocess.run([*command, "/dev/null"], check=True, timeout=60)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)


# the database -------------------------------------------------------------------------------------


def found_by_doctor(app: Penstock) -> list[str]:
    async def inspect() -> FileInfo:
        async with app:
            storage = await app.opened()
            assert isinstance(storage, Inspectable)
            info = await storage.inspect()
            assert isinstance(info, FileInfo)
            return info

    findings, _ = check_file(asyncio.run(inspect()))
    return [f.message for f in findings if f.level is Level.WARNING and f.about in ("permissions", "wake-ups")]


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        (lambda path: as_other(lambda: make_file(path, 0o600)), "belongs to"),
        (lambda path: make_file(path, 0o666), "every user can read and change all jobs"),
        (lambda path: make_file(path, 0o644), "every user can read all jobs"),
        (lambda path: None, "every user can replace the file"),
        (lambda path: (os.chmod(path.parent, 0o755), os.chown(path.parent, OTHER, -1)), "who can replace the file"),
    ],
    ids=["owner", "writable", "readable", "directory", "owner of the directory"],
)
def test_a_file_that_other_users_can_change_is_a_warning_at_open(
    place: Path, prepare: Callable[[Path], object], expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One line in the log for each process, and a warning of the doctor."""
    path = place / "jobs.db"
    prepare(path)
    for _ in range(2):
        with sync.Penstock(f"sqlite:{path}") as app:
            app.queue("q").enqueue(1)
    [record] = [record for record in caplog.records if record.name == "penstock.storage"]
    assert record.levelno == logging.WARNING
    assert expected in record.message
    assert str(place) in record.message
    assert any(expected in message for message in found_by_doctor(Penstock(f"sqlite:{path}")))


def test_a_file_of_its_own_is_no_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A private file in a private directory, or below /tmp, is opened without a word."""
    with sync.Penstock(f"sqlite:{tmp_path / 'jobs.db'}") as app:
        app.queue("q").enqueue(1)
    assert [record for record in caplog.records if record.name == "penstock.storage"] == []
    assert found_by_doctor(Penstock(f"sqlite:{tmp_path / 'jobs.db'}")) == []


# wake-ups -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("waiter", ["MAINPID=1\nSTATUS=forged", "0123456789abcdef"])
@pytest.mark.parametrize("relative", [False, True])
async def test_a_row_with_a_foreign_address_makes_no_process_send_anything(
    waiter: str, relative: bool, place: Path
) -> None:
    """A socket elsewhere gets no datagram from a producer, a worker or a publisher of events; the rows are deleted."""
    os.chmod(place, 0o700)
    elsewhere = place / "notify"
    path = place / "jobs.db"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as victim:
        victim.bind(str(elsewhere))
        victim.setblocking(False)
        address = "../notify" if relative else str(elsewhere)
        app = Penstock(f"sqlite:{path}")
        async with app:
            await app.queue("q").enqueue(1, id="first")
            (place / "jobs.db-wake").mkdir(0o700, exist_ok=True)  # so that a relative address would be found
            until = round(time.time() * 1000) + HOUR
            db = sqlite3.connect(path, isolation_level=None)
            db.execute("INSERT INTO idle VALUES ('penstock', 'q', 1, ?, ?, ?)", (waiter, address, until))
            db.execute("INSERT INTO waits VALUES ('penstock', 'q', 'first', ?, ?, ?)", (waiter, address, until))
            db.execute("INSERT INTO listeners VALUES (?, 'penstock', ?, ?, NULL, '')", (waiter, address, until))
            await app.queue("q").enqueue(2)
            [job] = await app.queue("q").reserve()
            await job.complete()
            assert db.execute("SELECT count(*) FROM idle").fetchone() == (0,)
            assert db.execute("SELECT count(*) FROM waits").fetchone() == (0,)
            assert db.execute("SELECT count(*) FROM listeners").fetchone() == (0,)
            db.close()
        with pytest.raises(BlockingIOError):
            victim.recv(1000)


@pytest.fixture
def deep(place: Path) -> Path:
    """A database with a path too long for sockets, so that they are in the temporary directory."""
    os.chmod(place, 0o700)
    directory = place / ("d" * 100)
    directory.mkdir(0o700)
    return directory / "jobs.db"


async def wake_up(path: Path) -> None:
    """Let a job of another process arrive while this one waits."""
    async with Penstock(f"sqlite:{path}") as app:
        waiting = asyncio.create_task(app.queue("q").reserve(wait=30))
        script = f"import penstock.sync as p; a = p.Penstock('sqlite:{path}'); a.__enter__(); a.queue('q').enqueue(1)"
        enqueued = await asyncio.create_subprocess_exec(sys.executable, "-c", script)
        assert await enqueued.wait() == 0
        [reserved] = await waiting
        await reserved.complete()


async def test_a_squatted_wake_up_directory_is_a_warning_and_jobs_still_arrive(
    deep: Path, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Another user made the directory first: one line in the log, a warning of the doctor, and polling."""
    shared = place.parent / f"{place.name}t"
    shared.mkdir(0o1777)
    os.chmod(shared, 0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))
    monkeypatch.setenv("TMPDIR", str(shared))
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    try:
        [squatted] = socket_directories(str(deep))
        as_other(lambda: os.mkdir(squatted, 0o777))
        await wake_up(deep)
        assert os.listdir(squatted) == []
        [record] = [record for record in caplog.records if record.name == "penstock.storage"]
        assert f"{squatted} belongs to another user" in record.message
        messages = await asyncio.to_thread(lambda: found_by_doctor(Penstock(f"sqlite:{deep}")))
        assert any(squatted in message for message in messages)
    finally:
        for directory in shared.iterdir():
            directory.rmdir()
        shared.rmdir()


async def test_the_runtime_directory_is_preferred_if_it_is_private(
    deep: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`XDG_RUNTIME_DIR` has the sockets if it belongs to this user alone; a shared one is not used."""
    runtime = place / "run"
    runtime.mkdir(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    first, second = socket_directories(str(deep))
    assert (Path(first).parent, Path(second).parent) == (runtime, Path(tempfile.gettempdir()))
    async with Penstock(f"sqlite:{deep}") as app:
        waiting = asyncio.create_task(app.queue("q").reserve(wait=30))
        await eventually(lambda: list(runtime.glob("*/*")))
        await app.queue("q").enqueue(1)
        [reserved] = await waiting
        await reserved.complete()
    for mode, owner in ((0o755, 0), (0o700, OTHER)):
        os.chmod(runtime, mode)
        os.chown(runtime, owner, -1)
        assert [Path(each).parent for each in socket_directories(str(deep))] == [Path(tempfile.gettempdir())]
