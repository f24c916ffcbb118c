"""Damaged rows of an SQLite file: verbs on other jobs answer, a worker drains the rest, and the damage is counted."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import JobError
from penstock.model.job import State
from penstock.storage.base import EventRecord, Request
from penstock.storage.sqlite import Engine, SqliteStorage
from penstock.storage.sqlite.blocking import BlockingSqliteStorage
from penstock.storage.sqlite.rows import QUARANTINE_MS
from tests.schedules import record
from tests.support import HOUR, LEASE, MINUTE, SECOND, Clock, complete, new, release, share_of, tally
from tests.tampering import QUEUE, Scene, build_scene, drain, limit_scene, use

T = TypeVar("T")

#: Values that no column holds, or only some: of other types, out of range, empty.
JUNK: tuple[Any, ...] = (
    "x", b"\xff\xfe", 2**63 - 1, None, -1, "", b"", 3.5, -(2**63), 0, 99, 7, 1, "/tmp/x",
)  # fmt: skip
#: Text that is not UTF-8 needs SQL to be written.
BAD_TEXT = "CAST(x'fffe' AS TEXT)"

#: Columns that are the identity of a queue: with another value it is another queue.
IDENTITY = {("queues", "k"), ("queues", "name"), ("queues", "namespace")}
TABLES = (
    "jobs", "queues", "lanes", "gone", "workers", "idle", "waits", "listeners", "events", "schedules", "stats",
    "history", "error_groups",
)  # fmt: skip
LIMIT_TABLES = ("limits", "families")


def ended(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the answer of a blocking storage's coroutine, which never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as answer:
        return answer.value
    raise AssertionError("the coroutine has suspended")


class Rig:
    """A file with a scene, of which each case damages a copy."""

    def __init__(self, directory: Path, limited: bool = False) -> None:
        self.base, self.copy = directory / "base.db", directory / "copy.db"
        clock = Clock()
        storage = self.storage(self.base, clock)
        self.scene = ended(build_scene(storage, clock))
        if limited:
            ended(limit_scene(storage))
        ended(storage.close())
        self.now = clock.ms
        until = round(time.time() * 1000) + HOUR
        tables = (*TABLES, *LIMIT_TABLES)
        with self.connect(self.base) as db:
            for number in (1, 2):
                db.execute("INSERT INTO idle VALUES ('n', ?, ?, ?, '9-aaaaaaaaaaaa', ?)",
                           (QUEUE, number, f"{number:016}", until))  # fmt: skip
            listener = "('00000000000000aa', 'n', '9-aaaaaaaaaaaa', ?, NULL, '')"
            db.execute(f"INSERT INTO listeners VALUES {listener}", (until,))
            db.execute("INSERT INTO events (namespace, queue, at, note) VALUES ('n', ?, ?, x'c0')", (QUEUE, until))
            self.columns = {table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")] for table in tables}
            self.keys = {
                table: [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[5]] for table in tables
            }
            self.rows: dict[str, list[Any]] = {
                table: db.execute(f"SELECT {', '.join(self.keys[table])} FROM {table} ORDER BY 1").fetchall()
                for table in tables
            }
            self.ids = dict(db.execute("SELECT n, id FROM jobs"))
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.close()

    @staticmethod
    def connect(path: Path) -> sqlite3.Connection:
        return sqlite3.connect(path, isolation_level=None)

    @staticmethod
    def storage(path: Path, clock: Clock) -> BlockingSqliteStorage:
        storage = BlockingSqliteStorage(Engine(str(path), clock=clock, synchronous="OFF", namespace="n"))
        ended(storage.open())
        return storage

    def try_damage(self, table: str, column: str, row: Sequence[Any], value: Any) -> str | None:
        """Damage one column of a copy, use it and drain it; returns the trouble, or None."""
        for end in ("", "-wal", "-shm"):
            self.copy.with_name(self.copy.name + end).unlink(missing_ok=True)
        shutil.copy(self.base, self.copy)
        where = " AND ".join(f"{key} IS ?" for key in self.keys[table])
        text, values = (BAD_TEXT, ()) if value is BAD_TEXT else ("?", (value,))
        db = self.connect(self.copy)
        try:
            assert db.execute(f"UPDATE {table} SET {column} = {text} WHERE {where}", (*values, *row)).rowcount == 1
        except sqlite3.Error:
            return None  # the schema refuses it
        finally:
            db.close()
        clock = Clock(self.now)
        scene = Scene(self.storage(self.copy, clock), clock, list(self.scene.live), list(self.scene.dead))
        victims = {"jobs": [self.ids.get(row[0])], "gone": [row[1:2]]}.get(table, [])
        try:
            ended(use(scene, [str(id) for id in victims]))
            ended(drain(scene, [str(id) for id in victims]))
        except Exception as error:
            return f"{table}.{column} = {value!r} of {row}: {type(error).__name__}: {error}"
        finally:
            ended(scene.storage.close())
        return None


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(tmp_path_factory.mktemp("t"))


@pytest.fixture(scope="module")
def limited_rig(tmp_path_factory: pytest.TempPathFactory) -> Rig:
    return Rig(tmp_path_factory.mktemp("t"), limited=True)


@pytest.mark.parametrize("table", ["queues", "lanes", "limits", "families", "jobs"])
def test_with_one_damaged_column_of_a_limited_queue_other_jobs_are_used_and_drained(
    limited_rig: Rig, table: str
) -> None:
    """Each column that limits read in turn: no verb raises, and each other job ends exactly once."""
    test_with_one_damaged_column_other_jobs_are_used_and_drained(limited_rig, table)


@pytest.mark.parametrize("table", TABLES)
def test_with_one_damaged_column_other_jobs_are_used_and_drained(rig: Rig, table: str) -> None:
    """Each column of each table in turn: no verb on other jobs raises, and each other job ends exactly once."""
    values = (*JUNK, BAD_TEXT)
    tries, rows = share_of(2), rig.rows[table]
    trouble: list[str | None] = []
    for at, column in enumerate(rig.columns[table]):
        if (table, column) in IDENTITY:
            continue
        for number in range(tries):
            value = values[(at + 5 * number) % len(values)] if number else values[at % 3]
            trouble.append(rig.try_damage(table, column, rows[(7 * at + 3 * number) % len(rows)], value))
    assert [line for line in trouble if line] == []


@settings(max_examples=share_of(12), derandomize=True)
@given(
    table=st.sampled_from(("jobs", "jobs", "queues", "lanes", "schedules")),
    column=st.integers(0, 99),
    row=st.integers(0, 99),
    value=st.one_of(st.integers(-(2**63), 2**63 - 1), st.binary(max_size=9), st.text(max_size=9), st.floats()),
)
def test_with_any_value_in_a_column_other_jobs_are_used_and_drained(
    rig: Rig, table: str, column: int, row: int, value: Any
) -> None:
    """Any value in any column of jobs, queues and groups harms no other job."""
    names = [name for name in rig.columns[table] if (table, name) not in IDENTITY]
    if isinstance(value, str):
        value = value.encode("utf-8", "replace").decode()
    rows = rig.rows[table]
    assert rig.try_damage(table, names[column % len(names)], rows[row % len(rows)], value) is None


# what becomes of the damaged record ---------------------------------------------------------------


class Case:
    """An empty file, its storage and a second connection."""

    def __init__(self, path: Path) -> None:
        self.clock = Clock()
        self.storage = Rig.storage(path, self.clock)
        self.db = Rig.connect(path)

    def damaged(self) -> int:
        [meter] = ended(self.storage.meters([QUEUE]))
        return meter.damaged

    def claim(self, limit: int = 100) -> list[str]:
        return [claim.id for claim in ended(self.storage.claim([Request(QUEUE, limit)], "w", LEASE, "t")).claims]

    def expire_leases(self) -> None:
        self.clock.advance(ms=LEASE + SECOND)


@pytest.fixture
def case(tmp_path: Path) -> Iterator[Case]:
    case = Case(tmp_path / "jobs.db")
    yield case
    case.db.close()
    ended(case.storage.close())


@pytest.mark.parametrize(
    ("column", "value"), [("stalls", "x"), ("stalls", 2**63 - 1), ("format", "x"), ("payload", None), ("rank", b"\xff")]
)
def test_reap_sets_an_unreadable_run_aside_and_takes_its_neighbour_back(case: Case, column: str, value: Any) -> None:
    """A run whose record cannot be read fails with its columns kept, is counted, and its neighbour is queued again."""
    ended(case.storage.put([new(QUEUE, id, b"payload") for id in "ab"]))
    assert case.claim() == ["a", "b"]
    case.db.execute(f"UPDATE jobs SET {column} = ? WHERE id = 'a'", (value,))
    case.expire_leases()
    assert [job.id for job in ended(case.storage.reap([QUEUE]))] == ["b"]
    assert case.claim() == ["b"]
    [found] = ended(case.storage.get(QUEUE, ["a"]))
    assert found is not None
    assert found.state is State.FAILED
    assert JobError.decode(found.error or b"").type == "CorruptRecord"
    assert case.db.execute(f"SELECT {column} FROM jobs WHERE id = 'a'").fetchone() == (value,)
    assert case.damaged() == 1
    assert ended(case.storage.counts(QUEUE)) == tally(running=1, failed=1)


def test_reap_gives_a_job_back_whose_run_cannot_be_read(case: Case) -> None:
    """Damage in the columns of a run does not end its job: it is queued again, and the damage is counted."""
    ended(case.storage.put([new(QUEUE, "a")]))
    case.claim()
    case.db.execute("UPDATE jobs SET worker = x'ff', cancel = 'nonsense', cancel_ttl = 'x' WHERE id = 'a'")
    case.expire_leases()
    assert [job.state for job in ended(case.storage.reap([QUEUE]))] == [State.QUEUED]
    assert case.claim() == ["a"]
    assert case.damaged() == 1


def test_a_settlement_that_sends_an_unreadable_job_back_fails_it_alone(case: Case) -> None:
    """In one call, the unreadable job fails and its neighbour is completed."""
    ended(case.storage.put([new(QUEUE, id) for id in "ab"]))
    claims = ended(case.storage.claim([Request(QUEUE, 2)], "w", LEASE, "t")).claims
    case.db.execute("UPDATE jobs SET retries = 'x' WHERE id = 'a'")
    settled = ended(case.storage.settle([release(claims[0]), complete(claims[1])]))
    assert [answer.state for answer in settled] == [State.FAILED, State.COMPLETED]
    assert case.damaged() == 1


@pytest.mark.parametrize("value", ["x", b"\xff", 2**63 - 1])
def test_purge_sets_a_scheduled_job_without_a_readable_time_aside(case: Case, value: Any) -> None:
    """A job that no claim would find is listed, and fails at the next purge."""
    ended(case.storage.put([new(QUEUE, id, delay=HOUR) for id in "ab"]))
    case.db.execute("UPDATE jobs SET due = ? WHERE id = 'a'", (value,))
    assert {job.id for job in ended(case.storage.find(QUEUE)).jobs} == {"a", "b"}
    ended(case.storage.purge([QUEUE]))
    assert ended(case.storage.counts(QUEUE)) == tally(scheduled=1, failed=1)
    assert case.damaged() == 1


@pytest.mark.parametrize("value", ["x", None, 2**63 - 1])
def test_a_run_whose_lease_has_no_readable_end_comes_back(case: Case, value: Any) -> None:
    """Purge gives the run a new lease, and reap takes it back when that has expired."""
    ended(case.storage.put([new(QUEUE, "a")]))
    case.claim()
    case.db.execute("UPDATE jobs SET until = ?", (value,))
    ended(case.storage.purge([QUEUE]))
    case.clock.advance(ms=HOUR)
    assert len(ended(case.storage.reap([QUEUE]))) == 1
    assert case.damaged() == 1


@pytest.mark.parametrize("change", ["holds = 99", "holds = 'x'", "grp = 'other'", "queue = 99", "parked = 99"])
def test_purge_frees_a_group_that_nothing_holds(case: Case, change: str) -> None:
    """A group whose row is wrong gets its turn again."""
    ended(case.storage.put([new(QUEUE, id, group="g") for id in "ab"]))
    case.db.execute(f"UPDATE lanes SET {change}")
    case.db.execute("UPDATE lanes SET turn_time = NULL")
    ended(case.storage.purge([QUEUE]))
    assert case.claim() == ["a"]
    assert case.damaged() >= 1


def test_a_group_with_a_damaged_count_of_holds_still_runs_one_job_at_a_time(case: Case) -> None:
    """An unreadable count is counted again from the jobs that run."""
    ended(case.storage.put([new(QUEUE, id, group="g") for id in "abc"]))
    assert case.claim() == ["a"]
    case.db.execute("UPDATE lanes SET holds = 'x'")
    ended(case.storage.put([new(QUEUE, "d", group="g")]))
    ended(case.storage.purge([QUEUE]))
    assert case.claim() == []
    ended(case.storage.settle([complete(claim) for claim in [_Ref("a")]]))
    assert case.claim() == ["b"]


class _Ref:
    queue, token = QUEUE, "t"

    def __init__(self, id: str) -> None:
        self.id = id


@pytest.mark.parametrize("column", ["seq", "time", "finished", "alarm", "expiry", "parked", "n_ready", "n_later"])
@pytest.mark.parametrize("value", ["x", -1, 2**63 - 1])
def test_damaged_numbers_of_a_queue_are_repaired(case: Case, column: str, value: Any) -> None:
    """Jobs are accepted, run in order and are counted; `counts` is right after the next purge."""
    ended(case.storage.put([new(QUEUE, "a"), new(QUEUE, "b", delay=SECOND)]))
    case.db.execute(f"UPDATE queues SET {column} = ?", (value,))
    ended(case.storage.put([new(QUEUE, "c")]))
    ended(case.storage.purge([QUEUE]))
    assert ended(case.storage.counts(QUEUE)) == tally(queued=2, scheduled=1)
    case.clock.advance(ms=SECOND)
    assert sorted(case.claim()) == ["a", "b", "c"]
    assert case.claim() == []


@pytest.mark.parametrize(
    ("column", "value"), [("version", "x"), ("spec", None), ("spec", "text"), ("fired", -1), ("last_id", b"\xff")]
)
def test_a_schedule_that_cannot_be_read_is_set_aside(case: Case, column: str, value: Any) -> None:
    """It is not listed and never due, its name is free, the other one fires, and the damage is counted."""
    ended(set_schedules(case, "a", "b"))
    try:
        case.db.execute(f"UPDATE schedules SET {column} = ? WHERE name = 'a'", (value,))
    except sqlite3.IntegrityError:
        case.db.execute("UPDATE schedules SET spec = 5 WHERE name = 'a'")
    case.clock.advance(ms=MINUTE)
    assert [each.name for each in ended(case.storage.schedules(QUEUE)).schedules] == ["b"]
    assert ended(case.storage.get_schedule(QUEUE, "a")) is None
    assert [each.name for each in ended(case.storage.due([QUEUE], "w")).schedules] == ["b"]
    assert case.damaged() == 1
    assert case.db.execute("SELECT next FROM schedules WHERE name = 'a'").fetchone() == (None,)
    assert ended(case.storage.set_schedule(record("a"), 0)) is not None
    assert [each.name for each in ended(case.storage.schedules(QUEUE)).schedules] == ["a", "b"]


@pytest.mark.parametrize("change", ["tick = 'x'", "tick = NULL", "tick = -1", f"tick = {2**63 - 1}", "ticker = x'ff'"])
def test_a_damaged_alarm_of_schedules_is_repaired(case: Case, change: str) -> None:
    """After the next purge a tick is due at its time."""
    ended(set_schedules(case, "a"))
    ended(case.storage.due([QUEUE], "w"))
    case.db.execute(f"UPDATE queues SET {change}")
    ended(case.storage.purge([QUEUE]))
    case.clock.advance(ms=MINUTE + SECOND)
    assert [each.name for each in ended(case.storage.due([QUEUE], "w")).schedules] == ["a"]
    assert ended(case.storage.due([QUEUE], "w")).look_at == case.clock.ms


@pytest.mark.parametrize("column", ["next", "expires"])
def test_purge_sets_a_schedule_without_a_readable_time_aside(case: Case, column: str) -> None:
    """A schedule that neither a tick nor a purge would find is counted, and deleted after a while."""
    ended(set_schedules(case, "a"))
    case.db.execute(f"UPDATE schedules SET {column} = 'x'")
    ended(case.storage.purge([QUEUE]))
    assert case.damaged() >= 1
    case.clock.advance(ms=QUARANTINE_MS)
    assert ended(case.storage.purge([QUEUE])) == 1
    assert case.db.execute("SELECT count(*) FROM schedules").fetchone() == (0,)


async def set_schedules(case: Case, *names: str) -> None:
    for name in names:
        assert await case.storage.set_schedule(record(name), 0) is not None


def test_an_unreadable_pause_stays_a_pause(case: Case) -> None:
    """A queue whose pause has no readable time runs nothing until it is resumed."""
    ended(case.storage.put([new(QUEUE, "a")]))
    case.db.execute("UPDATE queues SET paused = 'x'")
    assert case.claim() == []
    assert ended(case.storage.set_pause(QUEUE, False))
    assert case.claim() == ["a"]


def test_a_plain_put_does_not_copy_a_damaged_time_into_its_jobs(case: Case) -> None:
    """The put of one statement leaves a queue with an unreadable time to the general path, which repairs it."""
    for number in range(3):
        if number == 2:
            case.db.execute("UPDATE queues SET time = 'x'")
        ended(case.storage.put([new(QUEUE, f"j{number}", fresh=True)]))
    assert case.db.execute("SELECT DISTINCT typeof(time) FROM jobs").fetchall() == [("integer",)]


def test_a_queue_is_created_next_to_one_with_the_largest_number(case: Case) -> None:
    """A number of a queue that Penstock never gives does not prevent new queues, or events."""
    ended(case.storage.put([new(QUEUE, "a")]))
    case.db.execute("UPDATE queues SET k = ?", (2**63 - 1,))
    ended(case.storage.put([new("other", "b")]))
    assert ended(case.storage.counts("other"))[State.QUEUED] == 1


async def test_an_unreadable_event_is_skipped(tmp_path: Path) -> None:
    """A listener gets the events after one that other software wrote, also after the largest number."""
    storage = SqliteStorage(str(tmp_path / "jobs.db"), namespace="n")
    await storage.open()
    feed = aiter(storage.events())
    await storage.announce([EventRecord("idle", QUEUE, "first", 0)])
    assert (await anext(feed)).id == "first"
    db = Rig.connect(tmp_path / "jobs.db")
    wall = round(time.time() * 1000)
    for note in (b"\xff", "text", b""):
        db.execute("INSERT INTO events (namespace, queue, at, note) VALUES ('n', ?, ?, ?)", (QUEUE, wall, note))
    db.execute("INSERT INTO events (n, namespace, queue, at, note) VALUES (?, 'm', 'q', ?, '')", (2**63 - 1, wall))
    db.close()
    await storage.announce([EventRecord("idle", QUEUE, "last", 0)])
    async with asyncio.timeout(30):
        assert (await anext(feed)).id == "last"
    await feed.aclose()  # type: ignore[attr-defined]
    await storage.close()


def test_a_waiter_whose_name_is_no_text_does_not_hold_up_the_end_of_its_job(case: Case) -> None:
    """A settle of a job with such a waiter ends, and so does the next transaction."""
    ended(case.storage.put([new(QUEUE, "a", waiter="x")]))
    case.claim()
    case.db.execute(f"UPDATE waits SET waiter = {BAD_TEXT}, address = {BAD_TEXT}")
    ended(case.storage.settle([complete(_Ref("a"))]))
    assert ended(case.storage.counts(QUEUE)) == tally(completed=1)


def test_a_file_whose_schema_version_cannot_be_read_is_refused(case: Case, tmp_path: Path) -> None:
    """Open processes continue; a new one gets one line that names the file."""
    case.db.execute("UPDATE meta SET value = 'x'")
    ended(case.storage.put([new(QUEUE, "a")]))
    with pytest.raises(Exception, match=r"jobs\.db has schema version"):
        Rig.storage(tmp_path / "jobs.db", Clock())
    case.db.execute("DELETE FROM meta")
    with pytest.raises(Exception, match=r"jobs\.db has schema version"):
        Rig.storage(tmp_path / "jobs.db", Clock())
