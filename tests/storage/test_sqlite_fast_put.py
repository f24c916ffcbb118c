"""A plain job is put into an SQLite file by one statement, unless somebody else must hear of it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.model.job import NewJob, State
from penstock.storage.base import Request, Retried, Settlement
from penstock.storage.sqlite import Engine, admin, claim, engine, put, reads, settle, waiters
from penstock.storage.sqlite.transaction import Transaction
from penstock.sync import Penstock
from tests.support import Clock


class Producer:
    """An engine on a file, and how it puts jobs one by one."""

    def __init__(self, path: Path) -> None:
        self.woken: list[str] = []
        self.clock = Clock()
        self.engine = Engine(str(path), clock=self.clock)
        self.engine.wake_local = lambda waiter: self.woken.append(waiter) is None
        self.made = 0

    def new(self, queue: str = "q", **options: Any) -> NewJob:
        self.made += 1
        return NewJob(queue=queue, id=f"id{self.made}", payload=b"p", fresh=True, **options)

    def put(self, queue: str = "q", **options: Any) -> bool:
        """Put a job as the sync client does; whether one statement was enough."""
        new = self.new(queue, **options)
        if put.is_plain(new) and self.engine.put_alone(new):
            return True
        self.engine.run(lambda tx: put.put(tx, [new]))
        return False

    def run(self, verb: Callable[[Transaction], Any]) -> Any:
        return self.engine.run(verb)

    def rows(self, table: str) -> list[Any]:
        return self.run(lambda tx: tx.db.execute(f"SELECT * FROM {table}").fetchall())

    def ids(self, queue: str = "q") -> list[str]:
        """The jobs that may run, in their order, which this takes."""
        claimed = self.run(lambda tx: claim.claim(tx, [Request(queue, 100)], "w", 10_000, f"token{self.made}"))
        return [each.id for each in claimed.claims]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def producer(path: Path) -> Iterator[Producer]:
    producer = Producer(path)
    producer.engine.open()
    yield producer
    producer.engine.close()


def test_one_statement_is_enough(tmp_path: Path) -> None:
    """From the second on, an enqueue of a payload with no more than a priority runs no other statement."""
    with Penstock(f"sqlite:{tmp_path}/jobs.db") as app:
        queue = app.queue("q")
        queue.enqueue(1)
        storage: Any = app.backends.app.storage
        connection: sqlite3.Connection = storage.engine._connection()
        ran: list[str] = []
        connection.set_trace_callback(ran.append)
        queue.enqueue(2)
        queue.enqueue(3, priority=1)
        connection.set_trace_callback(None)
        assert {statement[:17] for statement in ran} == {"INSERT INTO plain"}
        assert [queue.reserve()[0].payload for _ in range(3)] == [3, 1, 2]


def test_jobs_put_alone_are_like_others(producer: Producer) -> None:
    """Order, counts and what is stored are the same whether one statement put a job or five."""
    other = Producer(Path(":memory:"))
    for priority in (0, 0, 5, -1, 0):
        producer.put(priority=priority)
        other.run(lambda tx, priority=priority: put.put(tx, [other.new(priority=priority)]))
    for table in ("jobs", "queues"):
        assert producer.rows(table) == other.rows(table)
    assert producer.run(lambda tx: reads.counts(tx, "q"))[State.QUEUED] == 5
    assert producer.ids() == other.ids() == ["id3", "id1", "id2", "id5", "id4"]
    other.engine.close()


def test_order_is_kept_when_the_clock_goes_back(producer: Producer) -> None:
    """Jobs that one statement accepts stay in the order of their acceptance, whatever the clock says."""
    assert not producer.put()
    assert producer.put()
    producer.clock.advance(seconds=-60)
    assert producer.put()
    assert producer.ids() == ["id1", "id2", "id3"]


def test_an_idle_worker_is_woken(producer: Producer) -> None:
    """A worker that has come to wait since the last job is woken by the next one."""
    producer.put()
    producer.ids()
    waiting = producer.run(lambda tx: waiters.add_idle(tx, ["q"], "waiter", producer.engine.address, 10_000))
    assert not waiting
    assert not producer.put()
    assert producer.woken == ["waiter"]
    assert not producer.put("other")
    assert producer.put("other")


def test_a_listener_hears_of_it(producer: Producer) -> None:
    """A reader of the feed that has come since the last job hears of the next one."""
    producer.put()
    after = producer.run(lambda tx: waiters.add_listener(tx, "ear", producer.engine.address))
    assert not producer.put()
    assert len(producer.run(lambda tx: waiters.read_events(tx, after, 10))) == 1
    assert not producer.put()
    producer.run(lambda tx: waiters.remove_listener(tx, "ear"))
    assert not producer.put()
    assert producer.put()


def test_jobs_whose_time_has_come_enter_first(producer: Producer) -> None:
    """A queue with later jobs is looked through before another job comes in."""
    producer.put()
    producer.put(delay=1_000)
    producer.clock.advance(seconds=2)
    assert not producer.put()
    assert producer.ids() == ["id1", "id2", "id3"]
    assert producer.put()
    producer.put(delay=1_000)
    assert not producer.put()
    assert not producer.put()


def test_jobs_that_wait_for_another_try_count_as_later_ones(producer: Producer) -> None:
    """A queue with jobs in backoff is looked through before another job comes in."""
    producer.put()
    [id] = producer.ids()
    again = Settlement("q", id, "token1", Retried(at=producer.clock.ms + 1_000))
    producer.run(lambda tx: settle.settle(tx, [again]))
    producer.clock.advance(seconds=2)
    assert not producer.put()
    assert producer.ids() == ["id1", "id2"]


def test_a_deleted_queue_is_made_again(producer: Producer) -> None:
    """A job for a queue that was deleted meanwhile makes it anew."""
    producer.put()
    assert producer.run(lambda tx: admin.delete_queue(tx, "q")) == 1
    assert not producer.put()
    assert producer.ids() == ["id2"]


def test_another_file_of_the_same_name_has_other_numbers(producer: Producer, path: Path) -> None:
    """What was known of a file is forgotten when it is opened again: it may be another."""
    producer.put("a")
    assert producer.put("a")
    producer.engine.close()
    for each in path.parent.glob("jobs.db*"):
        each.unlink()
    with_b = Producer(path)
    with_b.put("b")
    with_b.engine.close()
    assert not producer.put("a")
    assert producer.ids("a") == ["id3"]
    assert producer.ids("b") == ["id1"]


def test_a_queue_that_was_rolled_back_is_not_remembered(producer: Producer) -> None:
    """A queue that a failed transaction would have made is none: its number goes to another."""

    def fail(tx: Transaction) -> None:
        put.put(tx, [producer.new("a")])
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        producer.run(fail)
    producer.put("b")
    assert not producer.put("a")
    assert producer.ids("b") == ["id2"]


def test_a_locked_file_is_waited_for(producer: Producer, path: Path) -> None:
    """While another process has the lock, a job waits for it as in any transaction."""
    producer.put()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    assert not producer.engine.put_alone(producer.new())
    release = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
    release.start()
    try:
        assert not producer.put()
    finally:
        release.join()
        other.close()
    assert producer.put()
    assert producer.ids() == ["id1", "id3", "id4"]


def test_not_everything_is_remembered(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is known of queues does not grow without bound."""
    monkeypatch.setattr(engine, "MOST_QUIET", 3)
    for at in range(10):
        producer.put(f"q{at}")
    known: dict[str, int] = getattr(producer.engine, "_quiet")  # noqa: B009
    assert 0 < len(known) <= 3
