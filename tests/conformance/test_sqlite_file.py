"""The file of a SQLite storage: of another program, deleted or replaced while open, and on a full disk."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sqlite3
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import StorageError, StorageUnavailable, StorageUnusable
from penstock.storage.sqlite import SqliteStorage, engine, ordering
from penstock.storage.sqlite.blocking import BlockingSqliteStorage
from penstock.storage.sqlite.file_errors import APPLICATION_ID
from tests.support import HOUR, Clock, claim_all, complete, ids, limit_pages, new, put1, state_of, tally

pytestmark = pytest.mark.beyond_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@contextlib.asynccontextmanager
async def opened(path: Path, clock: Clock | None = None) -> AsyncGenerator[SqliteStorage]:
    storage = SqliteStorage(str(path), clock=clock)
    await storage.open()
    try:
        yield storage
    finally:
        await storage.close()


async def read_all(path: Path) -> None:
    """Open a file and read all jobs of the queue "q"."""
    async with opened(path) as storage:
        await storage.find("q", limit=1000)


def value(path: Path, statement: str) -> Any:
    """Return the one value that a statement gives."""
    db = sqlite3.connect(path)
    try:
        return db.execute(statement).fetchone()[0]
    finally:
        db.close()


# other programs ------------------------------------------------------------------------------------


async def test_a_new_file_is_marked_with_the_application_id(path: Path) -> None:
    """A file that open creates has the application_id of Penstock, also when another process opens it again."""
    async with opened(path), opened(path):
        assert value(path, "pragma application_id") == APPLICATION_ID
    assert value(path, "pragma page_size") == engine.PAGE_SIZE


@pytest.mark.parametrize("table", ["jobs", "meta", "django_migrations"])
def test_open_refuses_the_database_of_another_program(path: Path, table: str, runner: asyncio.Runner) -> None:
    """A file with tables of another program raises `StorageUnusable` that names one, and keeps its bytes."""
    db = sqlite3.connect(path)
    db.execute(f"create table {table} (id integer primary key, name text)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(StorageUnusable, match=rf"another program \(it has the table {table}\)"):
        runner.run(read_all(path))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_open_refuses_an_empty_database_with_another_application_id(path: Path) -> None:
    """A file without tables that another program has marked as its own is refused."""
    db = sqlite3.connect(path)
    db.execute("pragma application_id = 7")
    db.close()
    with pytest.raises(StorageUnusable, match="its application_id is 7"):
        async with opened(path):
            pass


async def test_open_names_the_way_out_of_a_damaged_file(path: Path) -> None:
    """A file that lost its second half raises `StorageUnusable` with the commands that recover jobs."""
    async with opened(path) as storage:
        await storage.put([new("q", f"j{n}", b"x" * 900) for n in range(200)])
    os.truncate(path, os.stat(path).st_size // 2)
    with pytest.raises(StorageUnusable) as caught:
        await read_all(path)
    assert "is damaged" in str(caught.value)
    assert "penstock export" in str(caught.value)
    assert f"sqlite3 {path} .recover" in str(caught.value)


# deleted and replaced ------------------------------------------------------------------------------


@pytest.fixture
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare the open file with the one of its path in every transaction, not once a second."""
    monkeypatch.setattr(engine, "FILE_CHECK", 0.0)


async def test_put_is_refused_when_the_file_was_deleted(path: Path, checked: None) -> None:
    """After the file was deleted, put and reads raise `StorageUnusable`; open after close makes a new file."""
    async with opened(path) as storage:
        await put1(storage, "q", "a")
        os.unlink(path)
        for _ in range(2):
            with pytest.raises(StorageUnusable, match="was deleted while it was open"):
                await put1(storage, "q", "b")
            with pytest.raises(StorageUnusable, match="restart this process"):
                await storage.counts("q")
        await storage.close()
        await storage.open()
        await put1(storage, "q", "b")
        assert await storage.counts("q") == tally(queued=1)


async def test_put_is_refused_when_the_file_was_replaced(path: Path, checked: None) -> None:
    """After another file took the path, put raises `StorageUnusable`, and the other file gets no job of it."""
    other = path.with_name("other.db")
    async with opened(other):
        pass
    async with opened(path) as storage:
        await put1(storage, "q", "a")
        other.rename(path)
        with pytest.raises(StorageUnusable, match="was replaced by another file"):
            await put1(storage, "q", "b")
    assert value(path, "select count(*) from jobs where id = 'b'") == 0


def test_a_blocking_put_is_refused_when_the_file_was_deleted(path: Path, checked: None) -> None:
    """The fast path of a blocking put refuses a deleted file as the general path does."""
    storage = SqliteStorage(str(path))
    direct = BlockingSqliteStorage(storage.engine)
    fresh: dict[str, Any] = {"fresh": True}

    def put(id: str) -> None:
        with contextlib.suppress(StopIteration):
            direct.put([new("q", id, **fresh)]).send(None)

    put("a")
    put("b")
    assert storage.engine.fast_put_queues
    path.unlink()
    with pytest.raises(StorageUnusable, match="was deleted"):
        put("c")
    storage.engine.close()


async def test_a_change_of_the_directory_is_not_a_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checked: None
) -> None:
    """A process that changes its directory keeps the file that it opened by a relative path."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    async with opened(Path("jobs.db")) as storage:
        await put1(storage, "q", "a")
        monkeypatch.chdir(tmp_path / "elsewhere")
        await put1(storage, "q", "b")
        assert await storage.counts("q") == tally(queued=2)
    assert list((tmp_path / "elsewhere").iterdir()) == []


# a full disk ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def max_file_size(size: int) -> Generator[None]:
    """Let no file of this process grow beyond `size` bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def fill(storage: SqliteStorage) -> int:
    """Put jobs until one is refused; returns how many were accepted."""
    for n in range(100_000):
        try:
            await put1(storage, "full", f"f{n}", b"x" * 500)
        except StorageUnavailable:
            return n
    raise AssertionError("the storage took everything")


async def test_put_on_a_full_disk_is_refused_and_reads_go_on(path: Path) -> None:
    """On a full disk put raises `StorageUnavailable` that names it, reads answer, and with room put works again."""
    async with opened(path) as storage:
        await put1(storage, "q", "a")
        limit_pages(storage, 2)
        accepted = await fill(storage)
        with pytest.raises(StorageUnavailable, match="the disk is full"):
            await put1(storage, "q", "b", b"x" * 5000)
        assert await storage.counts("full") == tally(queued=accepted)
        assert await state_of(storage) == "queued"
        assert ids((await storage.find("q")).jobs) == ["a"]
        limit_pages(storage, None)
        await put1(storage, "q", "b", b"x" * 5000)
        assert ids(await claim_all(storage)) == ["a", "b"]


async def test_a_full_disk_can_be_drained(path: Path) -> None:
    """Jobs are claimed and settled although no file can grow: the write-ahead log is used again."""
    async with opened(path) as storage:
        await storage.put([new("q", f"j{n:03}", b"x" * 200) for n in range(300)])
    with max_file_size(os.stat(path).st_size):
        async with opened(path) as storage:
            ended: list[str] = []
            while claims := await claim_all(storage, limit=5):
                await storage.settle([complete(claim, ttl=0) for claim in claims])
                ended += ids(claims)
            assert ended == [f"j{n:03}" for n in range(300)]


async def test_find_on_a_full_disk_shows_jobs_that_fell_due(path: Path, clock: Clock) -> None:
    """Where promotions cannot be stored, find, peek and why answer as if they were; later nothing is lost."""
    async with opened(path, clock) as storage:
        await put1(storage, "q", "later", delay=HOUR)
        await storage.put([new("pad", f"p{n}", b"x" * 900) for n in range(100)])
        with max_file_size(65_536):
            await fill(storage)
            clock.advance(ms=HOUR)
            with pytest.raises(StorageUnavailable, match="limit of file sizes"):
                await claim_all(storage)
            page = await storage.find("q")
            assert [(job.id, job.state) for job in page.jobs] == [("later", "queued")]
            head = await storage.peek("q")
            assert head is not None
            assert head.id == "later"
            position = await storage.why("q", "later")
            assert position is not None
        assert ids(await claim_all(storage)) == ["later"]


async def test_many_jobs_that_fell_due_on_a_full_disk_are_an_error(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If more jobs fell due than one transaction promotes, find raises instead of repeating for ever."""
    async with opened(path, clock) as storage:
        monkeypatch.setattr(ordering, "PROMOTE_MAX", 10)
        await storage.put([new("q", f"j{n}", b"x" * 500, delay=HOUR) for n in range(200)])
        with max_file_size(65_536):
            await fill(storage)
            clock.advance(ms=HOUR)
            with pytest.raises(StorageError, match="limit of file sizes"):
                await asyncio.wait_for(storage.find("q"), 30)
        assert len((await storage.find("q", limit=1000)).jobs) == 200
