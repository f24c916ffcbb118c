"""The fast path of put in SQLite: a plain job is inserted by one statement, and its rows equal those of `put.put`."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.model.job import NewJob, State
from penstock.storage.base import Request, Retried, Settlement
from penstock.storage.sqlite import Engine, admin, claim, fast_put, put, reads, settle, waiters
from penstock.storage.sqlite.fast_path import is_plain_job
from penstock.storage.sqlite.fast_put import put_fast
from penstock.storage.sqlite.transaction import Transaction
from penstock.sync import Penstock
from tests.support import Clock


class Producer:
    """An engine on a file that puts jobs one by one."""

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
        """Put a job as the sync client does; return whether the fast path did it."""
        new = self.new(queue, **options)
        if is_plain_job(new) and put_fast(self.engine, new):
            return True
        self.engine.run(lambda tx: put.put(tx, [new]))
        return False

    def run(self, verb: Callable[[Transaction], Any]) -> Any:
        return self.engine.run(verb)

    def rows(self, table: str) -> list[Any]:
        return self.run(lambda tx: tx.db.execute(f"SELECT * FROM {table}").fetchall())

    def ids(self, queue: str = "q") -> list[str]:
        """Claim all ready jobs and return their ids in order."""
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
    """From the second on, an enqueue of a job with a payload and a priority runs one statement."""
    with Penstock(f"sqlite:{tmp_path}/jobs.db") as app:
        queue = app.queue("q")
        queue.enqueue(1)
        storage: Any = app.backends.app.storage
        connection: sqlite3.Connection = storage.engine.connection()
        ran: list[str] = []
        connection.set_trace_callback(ran.append)
        queue.enqueue(2)
        queue.enqueue(3, priority=1)
        connection.set_trace_callback(None)
        assert {statement[:17] for statement in ran} == {"INSERT INTO plain"}
        assert [queue.reserve()[0].payload for _ in range(3)] == [3, 1, 2]


def test_the_fast_path_leaves_the_same_rows_as_the_general_path(producer: Producer) -> None:
    """Order, counts and rows of jobs are equal whether the fast path or `put.put` has put them."""
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
    """Jobs put by the fast path keep the order of their acceptance when the clock is set back."""
    assert not producer.put()
    assert producer.put()
    producer.clock.advance(seconds=-60)
    assert producer.put()
    assert producer.ids() == ["id1", "id2", "id3"]


def test_an_idle_worker_is_woken(producer: Producer) -> None:
    """A worker that became idle after the last put is woken by the next one, on the general path."""
    producer.put()
    producer.ids()
    waiting = producer.run(lambda tx: waiters.add_idle(tx, ["q"], "waiter", producer.engine.address, 10_000))
    assert not waiting
    assert not producer.put()
    assert producer.woken == ["waiter"]
    assert not producer.put("other")
    assert producer.put("other")


def test_a_listener_gets_the_event(producer: Producer) -> None:
    """A listener that was added after the last put gets the event of the next one, on the general path."""
    producer.put()
    after = producer.run(lambda tx: waiters.add_listener(tx, "listener", producer.engine.address))
    assert not producer.put()
    assert len(producer.run(lambda tx: waiters.read_events(tx, after, None, 10))) == 1
    assert not producer.put()
    producer.run(lambda tx: waiters.remove_listener(tx, "listener"))
    assert not producer.put()
    assert producer.put()


@pytest.mark.parametrize(("queue", "names"), [("another", None), (None, ["completed"])])
def test_a_listener_to_other_events_leaves_the_fast_path(
    producer: Producer, queue: str | None, names: list[str] | None
) -> None:
    """A put with a listener to another queue, or to other events, takes the fast path and stores no event."""
    producer.put()
    assert producer.put()
    add = partial(waiters.add_listener, waiter="listener", address=producer.engine.address, queue=queue, names=names)
    after = producer.run(add)
    assert producer.put()
    assert producer.run(lambda tx: waiters.read_events(tx, after, None, 10)) == []


def test_due_scheduled_jobs_keep_their_position(producer: Producer) -> None:
    """A put into a queue with scheduled jobs takes the fast path, and the due ones run before the new job."""
    producer.put()
    producer.put(delay=1_000)
    producer.clock.advance(seconds=2)
    assert producer.put()
    assert producer.ids() == ["id1", "id2", "id3"]
    producer.put(delay=1_000)
    assert producer.put()


def test_due_retrying_jobs_keep_their_position(producer: Producer) -> None:
    """A put into a queue with jobs in backoff takes the fast path, and the due ones run before the new job."""
    producer.put()
    [id] = producer.ids()
    again = Settlement("q", id, "token1", Retried(at=producer.clock.ms + 1_000))
    producer.run(lambda tx: settle.settle(tx, [again]))
    producer.clock.advance(seconds=2)
    assert producer.put()
    assert producer.ids() == ["id1", "id2"]


def test_a_deleted_queue_is_made_again(producer: Producer) -> None:
    """A put into a queue that was deleted after the last put creates the queue again."""
    producer.put()
    assert producer.run(lambda tx: admin.delete_queue(tx, "q")) == 1
    assert not producer.put()
    assert producer.ids() == ["id2"]


def test_another_file_of_the_same_name_has_other_numbers(producer: Producer, path: Path) -> None:
    """Opening a file forgets the numbers of its queues: another file of the same name has other numbers."""
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
    """A queue of a transaction that was rolled back is not remembered: its number goes to another queue."""

    def fail(tx: Transaction) -> None:
        put.put(tx, [producer.new("a")])
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        producer.run(fail)
    producer.put("b")
    assert not producer.put("a")
    assert producer.ids("b") == ["id2"]


def test_a_locked_file_is_waited_for(producer: Producer, path: Path) -> None:
    """While another process holds the lock, the fast path does nothing and the general path waits for the lock."""
    producer.put()
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    assert not put_fast(producer.engine, producer.new())
    release = threading.Timer(0.05, lambda: other.execute("ROLLBACK"))
    release.start()
    try:
        assert not producer.put()
    finally:
        release.join()
        other.close()
    assert producer.put()
    assert producer.ids() == ["id1", "id3", "id4"]


def test_the_number_of_remembered_queues_is_bounded(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine remembers the numbers of at most `MAX_QUEUES` queues."""
    monkeypatch.setattr(fast_put, "MAX_QUEUES", 3)
    for at in range(10):
        producer.put(f"q{at}")
    assert 0 < len(producer.engine.fast_put_queues) <= 3
