"""The engine: a connection, and verbs run on it as transactions on the calling thread.

It needs no event loop and no thread of its own. Waking others is part of a verb, after its commit.
"""

from __future__ import annotations

import os
import random
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from penstock.errors import PenstockError, StorageError, StorageUnavailable, VersionMismatch
from penstock.model.clock import Clock, SystemClock
from penstock.model.job import NewJob
from penstock.storage.sqlite.rows import FORMAT
from penstock.storage.sqlite.sql import FAST_PUT, SCHEMA, SQL
from penstock.storage.sqlite.transaction import NeedsWriteLock, Transaction, Wake
from penstock.storage.sqlite.waiters import replace_dead
from penstock.storage.sqlite.wakeup import send_wakeups

__all__ = ["SCHEMA_VERSION", "Engine", "Op", "Synchronous"]

SCHEMA_VERSION = 1

#: A writer that has waited so long (s) for the lock of the file gives up.
BUSY_TIMEOUT = 30.0

#: The first and the longest pause (s) between two tries for the lock.
FIRST_PAUSE, MAX_PAUSE = 0.000_05, 0.005

#: The size of a new file's pages (bytes), and after how many of them the log is carried into the file.
PAGE_SIZE, CHECKPOINT_PAGES = 2048, 4000

PUT_ALONE = SQL["put_alone"]

#: Of so many queues it is remembered that a job can be put there alone.
MOST_QUIET = 1_000

#: The results (primary codes) that mean: somebody else has the lock.
BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)

#: What SQLite does to survive a power cut; a process that is killed loses nothing with any of them.
Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]

T = TypeVar("T")

#: A verb with its arguments bound, and whether it writes.
Op = tuple[Callable[[Transaction], Any], bool]

#: Connections of a parent process: closing them in a child would drop the parent's locks.
_inherited: list[sqlite3.Connection] = []

#: Every engine of this process, and those that stand still while it forks.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_locked_for_fork: list[Engine] = []


class Engine:
    """One database file (or a private one in memory) and everything that one process does with it."""

    def __init__(
        self, path: str, *, clock: Clock | None = None, synchronous: Synchronous = "NORMAL", namespace: str = "penstock"
    ) -> None:
        if not path:
            raise ValueError("path must be a file name or ':memory:'")
        if synchronous not in get_args(Synchronous):
            raise ValueError(f"synchronous must be one of {', '.join(get_args(Synchronous))}, not {synchronous!r}")
        self.path = path
        self.memory = path == ":memory:"
        self.namespace = namespace
        self.clock: Clock = clock or SystemClock()
        self.synchronous = synchronous
        #: The newest record format that is read here, and the one that is written.
        self.format = FORMAT
        #: Where other processes reach this one; a socket replaces it when somebody waits here.
        self.address = f"none:{secrets.token_hex(8)}"
        #: Wakes a waiter of this process; False when there is none of that name.
        self.wake_local: Callable[[str], bool] = lambda waiter: False
        self._db: sqlite3.Connection | None = None
        #: The numbers of queues that took their last job without anybody else having to hear of it.
        self._quiet: dict[str, int] = {}
        self._pid = 0
        self._lock = threading.RLock()
        _engines.add(self)

    # connection ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect and create what is missing. Idempotent."""
        with self._lock:
            try:
                self._connection()
            except sqlite3.Error as error:
                raise _translate(error, self.path) from error

    def reset_in_child(self) -> None:
        """In a child process: a lock that the parent's threads held is nobody's here."""
        self._lock = threading.RLock()
        self.address = f"none:{secrets.token_hex(8)}"

    def lock_for_fork(self) -> None:
        """Before a fork: no transaction is under way, and no child inherits a file that is open.

        SQLite keeps account of a file's locks per process; in a child that account would be the
        parent's, and name locks that the child does not have.
        """
        self._lock.acquire()
        if not self.memory:
            self.close()

    def unlock_after_fork(self) -> None:
        """After a fork, in parent and child."""
        self._lock.release()

    def close(self) -> None:
        """Let go of the connection. Idempotent."""
        with self._lock:
            if self._db is not None and self._pid == os.getpid():
                self._db.close()
            self._db = None

    def _connection(self) -> sqlite3.Connection:
        if self._db is not None and self._pid == os.getpid():
            return self._db
        if self._db is not None:
            _inherited.append(self._db)
        self._db, self._pid = self._retry_while_busy(self._connect), os.getpid()
        return self._db

    def _connect(self) -> sqlite3.Connection:
        if not self.memory:
            _create(self.path)
        db = sqlite3.connect(self.path, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
        try:
            # A commit of one job writes four or five pages, whatever little changed in them.
            db.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {self.synchronous}")
            db.execute("PRAGMA cache_size = -32768")
            db.execute("PRAGMA mmap_size = 1073741824")
            db.execute("PRAGMA temp_store = MEMORY")
            db.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            self._create_tables(db)
            _run_script(db, FAST_PUT)
        except BaseException:
            db.close()
            raise
        self._quiet.clear()
        return db

    def _create_tables(self, db: sqlite3.Connection) -> None:
        """Create the schema inside one transaction, so that many processes may open a new file at once."""
        if _version(db) is None:
            db.execute("BEGIN IMMEDIATE")
            try:
                if _version(db) is None:
                    _run_script(db, SCHEMA)
                    db.execute("INSERT INTO meta (key, value) VALUES ('schema', ?)", (SCHEMA_VERSION,))
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
        version = _version(db)
        if version is None or version > SCHEMA_VERSION:
            raise VersionMismatch(
                f"{self.path} has schema version {version}, written by a newer Penstock;"
                f" this one understands versions up to {SCHEMA_VERSION}"
            )

    # transactions --------------------------------------------------------------------------------

    def now(self) -> int:
        """The storage's clock, in milliseconds."""
        return round(self.clock.time() * 1000)

    def run(self, verb: Callable[[Transaction], T], write: bool = True) -> T:
        """Run one verb as one transaction."""
        ops = ((verb, write),)
        with self._lock:
            try:
                [answer], wakes = self._run(ops, write)
            except (sqlite3.Error, TypeError, LookupError) as error:
                raise _translate(error, self.path) from error
        if wakes:
            self._wake(wakes)
        return answer

    def run_group(self, ops: Sequence[Op]) -> list[Any]:
        """Run verbs in one transaction; answers or exceptions, in order.

        If one raises, everything is rolled back and each is run by itself, so that only the guilty
        one fails.
        """
        with self._lock:
            try:
                answers, wakes = self._run(ops, any(writes for _, writes in ops))
            except Exception as error:
                if len(ops) == 1 or _code(error) in BUSY:
                    return [_translate(error, self.path) for _ in ops]
                return [self.run_group([op])[0] for op in ops]
        if wakes:
            self._wake(wakes)
        return answers

    def put_alone(self, new: NewJob) -> bool:
        """Accept a plain job with a fresh id in one statement; False says that nothing was done.

        That is so where it takes more, also to say what is wrong: then a transaction must do it. The
        clock is read before the lock is had; it is the queue's own time that keeps the order.
        """
        with self._lock:
            try:
                db = self._connection()
                queue = self._quiet.get(new.queue)
                if queue is None:
                    return False
                before = db.total_changes
                db.execute(PUT_ALONE, (queue, new.id, new.payload, -new.priority, self.now(), self.format))
            except sqlite3.Error:
                return False
            if db.total_changes != before:
                return True
            del self._quiet[new.queue]
            return False

    def _run(self, ops: Sequence[Op], write: bool) -> tuple[list[Any], list[Wake]]:
        """A transaction that succeeds at once, as almost all do; or whatever it takes."""
        try:
            return self._attempt(ops, write)
        except (NeedsWriteLock, sqlite3.OperationalError):
            return self._retry_while_busy(lambda: self._transact(ops, write))

    def _transact(self, ops: Sequence[Op], write: bool) -> tuple[list[Any], list[Wake]]:
        try:
            return self._attempt(ops, write)
        except NeedsWriteLock:
            return self._attempt(ops, True)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        # Some text in the file is not UTF-8: read it as well as can be, so that its record can be set aside.
        self._connection().text_factory = _decode_lossy
        try:
            return self._attempt(ops, True, damaged=True)
        finally:
            self._connection().text_factory = str

    def _attempt(self, ops: Sequence[Op], write: bool, damaged: bool = False) -> tuple[list[Any], list[Wake]]:
        db = self._connection()
        execute = db.cursor().execute
        try:  # from the first step on: an interrupt may come between any two
            execute("BEGIN IMMEDIATE" if write else "BEGIN")
            # The clock is read under the lock, so that order stamps follow the order of commits.
            wall = round(time.time() * 1000)
            now = wall if type(self.clock) is SystemClock else self.now()
            tx = Transaction(db, execute, self.namespace, now, wall, write, damaged, self.format)
            answers = [verb(tx) for verb, _ in ops]
            if write:
                tx.before_commit()
            execute("COMMIT")
        except BaseException:
            _roll_back(db)
            raise
        if tx.fast_put_queue is not None:
            if len(self._quiet) >= MOST_QUIET:
                self._quiet.clear()
            name, number = tx.fast_put_queue
            self._quiet[name] = number
        return answers, tx.wakes

    def _retry_while_busy(self, attempt: Callable[[], T]) -> T:
        """Try again, with short growing pauses, while another connection holds the lock.

        SQLite's own busy timeout backs off up to 100 ms and lets one process starve the others.
        """
        pause, give_up = FIRST_PAUSE, time.monotonic() + BUSY_TIMEOUT
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if _code(error) not in BUSY or time.monotonic() >= give_up:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 1.5, MAX_PAUSE)

    def _wake(self, wakes: list[Wake]) -> None:
        """Wake whom a transaction chose; in place of the dead ones it chooses others."""
        while wakes:
            dead = send_wakeups(wakes, self.address, self.wake_local)
            if not dead:
                return
            again: list[Op] = [(partial(replace_dead, dead=dead), True)]
            with self._lock:
                try:
                    _, wakes = self._run(again, True)
                except (sqlite3.Error, PenstockError):
                    return  # a hint only: whoever waits looks for itself before long


def _before_fork() -> None:
    for engine in list(_engines):
        engine.lock_for_fork()
        _locked_for_fork.append(engine)


def _after_fork() -> None:
    while _locked_for_fork:
        _locked_for_fork.pop().unlock_after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _create(path: str) -> None:
    """A new file is for its owner only; one that is there keeps its mode."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        raise StorageUnavailable(f"cannot create {path}: {error.strerror}") from error


def _version(db: sqlite3.Connection) -> int | None:
    if db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'").fetchone() is None:
        return None
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return None if row is None else row[0]


def _run_script(db: sqlite3.Connection, script: str) -> None:
    """`executescript` would commit first; this runs statement by statement inside the transaction."""
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            db.execute(statement)
            statement = ""


def _roll_back(db: sqlite3.Connection) -> None:
    if db.in_transaction:
        db.execute("ROLLBACK")


def _decode_lossy(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _code(error: BaseException) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


_MEANINGS: dict[int, tuple[type[StorageError], str]] = {
    sqlite3.SQLITE_BUSY: (StorageUnavailable, "is locked by another process"),
    sqlite3.SQLITE_LOCKED: (StorageUnavailable, "is locked by another process"),
    sqlite3.SQLITE_FULL: (StorageUnavailable, "cannot grow: the disk is full"),
    sqlite3.SQLITE_READONLY: (StorageUnavailable, "cannot be written: it is read-only"),
    sqlite3.SQLITE_CANTOPEN: (StorageUnavailable, "cannot be opened"),
    sqlite3.SQLITE_IOERR: (StorageUnavailable, "cannot be read or written"),
    sqlite3.SQLITE_PERM: (StorageUnavailable, "may not be opened"),
    sqlite3.SQLITE_NOTADB: (StorageError, "is not a database"),
    sqlite3.SQLITE_CORRUPT: (StorageError, "is damaged"),
}


def _translate(error: Exception, path: str) -> Exception:
    """An error of SQLite as one of ours, and what a verb stumbles over; any other as it is."""
    if isinstance(error, TypeError | LookupError):  # a column that is not what only another hand can make of it
        ours = StorageError(f"{path} holds a record that cannot be read ({error}); `penstock doctor` looks for damage")
        ours.__cause__ = error
        return ours
    if not isinstance(error, sqlite3.Error):
        return error
    kind, words = _MEANINGS.get(_code(error), (StorageError, "gave an error"))
    ours = kind(f"{path} {words} ({error})")
    ours.__cause__ = error
    return ours
