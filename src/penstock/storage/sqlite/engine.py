"""The engine: one connection, and verbs run on it as transactions on the calling thread.

It needs no event loop and no thread of its own. A verb also wakes the waiters it has work for, after its
commit.
"""

from __future__ import annotations

import contextlib
import math
import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal, TypeVar, get_args

from penstock.errors import PenstockError
from penstock.model.clock import Clock, SystemClock
from penstock.model.source import source
from penstock.model.storage_info import schema_mismatch
from penstock.storage.sqlite.fast_put import remember
from penstock.storage.sqlite.file_access import warn_of_exposures
from penstock.storage.sqlite.file_errors import (
    APPLICATION_ID,
    BUSY,
    FileIdentity,
    create_file,
    error_code,
    is_full,
    locked,
    refuse_other_file,
    refuse_other_program,
    translate,
)
from penstock.storage.sqlite.flows import apply_effects
from penstock.storage.sqlite.rows import FORMAT
from penstock.storage.sqlite.sql import FAST_PUT, SCHEMA, SQL
from penstock.storage.sqlite.transaction import NeedsWriteLock, Transaction, Wake
from penstock.storage.sqlite.waiters import replace_dead
from penstock.storage.sqlite.wakeup import send_wakeups, socket_directories

__all__ = ["BUSY_TIMEOUT", "SCHEMA_VERSION", "Engine", "Op", "Synchronous"]

SCHEMA_VERSION = 6

#: The version of a file that has the table for it, but no number in it.
UNREADABLE_VERSION = -1

#: A writer gives up after waiting this long (s) for the lock of the file.
BUSY_TIMEOUT = 30.0

#: The longest wait (s) for the lock to choose another waiter in place of one whose process is gone.
WAKE_TIMEOUT = 1.0

#: The first and the longest pause (s) between two attempts to get the lock.
FIRST_PAUSE, MAX_PAUSE = 0.000_05, 0.005

#: Page size of a new file (bytes), and the number of pages in the write-ahead log that starts a checkpoint.
PAGE_SIZE, CHECKPOINT_PAGES = 2048, 4000

#: The statements that free numbers which Penstock never gives.
RENUMBER = ("renumber_events", "renumber_queues", "renumber_next")

#: How often (s) an open file is compared with the one that its path names.
FILE_CHECK = 1.0

#: How far SQLite protects commits from a power cut; a killed process loses nothing with any of them.
Synchronous = Literal["OFF", "NORMAL", "FULL", "EXTRA"]

T = TypeVar("T")

#: A verb with its arguments bound, and whether it writes.
Op = tuple[Callable[[Transaction], Any], bool]

#: Connections of a parent process: closing them in a child would drop the parent's locks.
_inherited: list[sqlite3.Connection] = []

#: Every engine of this process, and those that are locked while it forks.
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_locked_for_fork: list[Engine] = []


class Engine:
    """One database file (or a private database in memory) and the transactions of one process on it.

    `fast=False` turns off every fast path (see `fast_path.py`), for tests that compare them with the
    general paths.
    """

    def __init__(
        self,
        path: str,
        *,
        clock: Clock | None = None,
        synchronous: Synchronous = "NORMAL",
        namespace: str = "penstock",
        fast: bool = True,
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
        self.fast = fast
        #: The newest record format that this engine reads, and the one that it writes.
        self.format = FORMAT
        #: Address at which other processes wake this one; the name of a socket as soon as this process has a waiter.
        self.address = f"none:{source.bytes(8).hex()}"
        #: Wakes a waiter of this process; returns False if there is none of that name.
        self.wake_local: Callable[[str], bool] = lambda waiter: False
        #: Delivers wake-ups and returns those whose process is gone; a simulation has its own.
        self.send_wakeups = send_wakeups
        self._db: sqlite3.Connection | None = None
        #: The absolute path and the identity of the open file, and when they are compared again (monotonic).
        self._file = path
        self._identity: FileIdentity | None = None
        self._next_check = 0.0
        self._wake_directories: list[str] | None = None
        #: The numbers of the queues that the fast path of put may use, by name; see `fast_put.py`.
        self.fast_put_queues: dict[str, int] = {}
        self._pid = 0
        #: Held during each transaction, since threads share the connection.
        self.lock = threading.RLock()
        #: When (of `time.monotonic`) the transaction that holds `lock` stops waiting for the lock of the file.
        self._give_up = 0.0
        _engines.add(self)

    # connection ----------------------------------------------------------------------------------

    def open(self) -> None:
        """Connect and create missing tables. Idempotent."""
        with self.lock:
            self._give_up = time.monotonic() + BUSY_TIMEOUT
            try:
                self.connection()
            except sqlite3.Error as error:
                raise translate(error, self.path) from error

    def reset_in_child(self) -> None:
        """Replace the lock and the address in a child process: threads of the parent may have held the lock."""
        self.lock = threading.RLock()
        self.address = f"none:{source.bytes(8).hex()}"

    def lock_for_fork(self) -> None:
        """Wait for the running transaction and close the file, before this process forks.

        SQLite keeps a table of a file's locks per process. A child with an open file would inherit the
        parent's table, and with it locks that the child does not hold.
        """
        self.lock.acquire()
        if not self.memory:
            self._disconnect()

    def unlock_after_fork(self) -> None:
        """Allow transactions again after a fork, in parent and child."""
        self.lock.release()

    def close(self) -> None:
        """Close the connection. Idempotent."""
        with self.lock:
            self._disconnect()
            self._identity = None

    def _disconnect(self) -> None:
        """Close the connection; the next one must be to the same file."""
        if self._db is not None and self._pid == os.getpid():
            self._db.close()
        self._db = None

    def connection(self) -> sqlite3.Connection:
        """Return the connection of this process, opened if needed; the caller holds `lock`."""
        if self._db is not None and self._pid == os.getpid():
            if time.monotonic() >= self._next_check:
                self._check_file()
            return self._db
        if self._db is not None:
            _inherited.append(self._db)
        self._db, self._pid = self._retry_while_busy(self._connect), os.getpid()
        return self._db

    def _check_file(self) -> None:
        """Raise `StorageUnusable` if the open file is not the one that its path names, with every call from then on."""
        if self._identity is not None:
            refuse_other_file(self._file, self._identity)
        self._next_check = time.monotonic() + FILE_CHECK

    def _locate_file(self) -> FileIdentity | None:
        """Return the identity of the file to connect to, created if needed; None for a database in memory."""
        if self.memory:
            self._next_check = math.inf
            return None
        if self._identity is not None:  # this process has forked
            self._check_file()
            return self._identity
        self._file = os.path.abspath(self.path)
        create_file(self._file)
        return FileIdentity.of(self._file)

    def _connect(self) -> sqlite3.Connection:
        identity = self._locate_file()
        file = self._file
        db = sqlite3.connect(file, timeout=0, isolation_level=None, check_same_thread=False, cached_statements=256)
        try:
            db.execute("PRAGMA trusted_schema = OFF")
            db.execute("PRAGMA cell_size_check = ON")
            refuse_other_program(db, self.path)
            # A commit of one job writes four or five whole pages: small pages keep the log small.
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
        if identity is not None:
            warn_of_exposures(file)
        self.fast_put_queues.clear()  # another file of the same name has other numbers
        self._identity = identity
        return db

    def _create_tables(self, db: sqlite3.Connection) -> None:
        """Create the schema inside one transaction, so that many processes may open a new file at once."""
        if _version(db) is None:
            db.execute("BEGIN IMMEDIATE")
            try:
                if _version(db) is None:
                    refuse_other_program(db, self.path)
                    _run_script(db, SCHEMA)
                    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                    db.execute("INSERT INTO meta (key, value) VALUES ('schema', ?)", (SCHEMA_VERSION,))
                db.execute("COMMIT")
            except BaseException:
                _roll_back(db)
                raise
        version = _version(db)
        if version != SCHEMA_VERSION:
            known = None if version == UNREADABLE_VERSION else version
            raise schema_mismatch(self.path, known, SCHEMA_VERSION)

    def wake_directories(self) -> list[str]:
        """Return the directories in which the processes of this file have their wake-up sockets."""
        if self._wake_directories is None:
            self._wake_directories = [] if self.memory else socket_directories(self._file)
        return self._wake_directories

    # transactions --------------------------------------------------------------------------------

    def now(self) -> int:
        """Return the storage's time in milliseconds."""
        return round(self.clock.time() * 1000)

    def run(self, verb: Callable[[Transaction], T], write: bool = True, within: float = BUSY_TIMEOUT) -> T:
        """Run one verb as one transaction; raises `StorageUnavailable` if it has no lock within these seconds."""
        ops = ((verb, write),)
        give_up = time.monotonic() + within
        if not self.lock.acquire(timeout=within):
            raise locked(self.path, within)
        try:
            self._give_up = give_up
            [answer], wakes = self._run(ops, write)
        except (sqlite3.Error, TypeError, LookupError) as error:
            raise (locked(self.path, within) if error_code(error) in BUSY else translate(error, self.path)) from error
        finally:
            self.lock.release()
        if wakes:
            self._wake(wakes)
        return answer

    def run_group(self, ops: Sequence[Op], give_up: float | None = None) -> list[Any] | None:
        """Run verbs in one transaction; returns their answers or exceptions, in order.

        If one raises, the transaction is rolled back and each verb runs in its own, so that only the
        one that raises fails. Returns None, and nothing is done, if another process holds the lock of the file
        until `give_up` (of `time.monotonic`), by default for `BUSY_TIMEOUT`.
        """
        with self.lock:
            self._give_up = time.monotonic() + BUSY_TIMEOUT if give_up is None else give_up
            try:
                answers, wakes = self._run(ops, any(writes for _, writes in ops))
            except Exception as error:
                if error_code(error) in BUSY:
                    return None
                if len(ops) == 1:
                    return [translate(error, self.path)]
                return [self._run_alone(op) for op in ops]
        if wakes:
            self._wake(wakes)
        return answers

    def _run_alone(self, op: Op) -> Any:
        answers = self.run_group([op])
        return locked(self.path, BUSY_TIMEOUT) if answers is None else answers[0]

    def _run(self, ops: Sequence[Op], write: bool) -> tuple[list[Any], list[Wake]]:
        """Run one transaction, and repeat it as `_transact` does if the first attempt fails."""
        try:
            return self._attempt(ops, write)
        except (NeedsWriteLock, sqlite3.OperationalError) as error:
            if is_full(error):
                self._make_room()
            try:
                return self._retry_while_busy(lambda: self._transact(ops, write))
            except sqlite3.OperationalError as again:
                if is_full(error) or not is_full(again):
                    raise
                self._make_room()  # the first attempt was a read that had to write
                return self._retry_while_busy(lambda: self._transact(ops, write))

    def _transact(self, ops: Sequence[Op], write: bool) -> tuple[list[Any], list[Wake]]:
        """Run one transaction, again with the write lock or with lossy text decoding where it needs that."""
        try:
            return self._attempt(ops, write)
        except NeedsWriteLock:
            return self._attempt(ops, True, reading=True)
        except sqlite3.OperationalError as error:
            if "decode" not in str(error):
                raise
        # Some text in the file is not UTF-8. Decode it with replacement characters, so a claim can fail its record.
        self.connection().text_factory = _decode_lossy
        try:
            return self._attempt(ops, True, damaged=True)
        finally:
            self.connection().text_factory = str

    def _make_room(self) -> None:
        """Copy the write-ahead log into the file, and free the largest numbers of queues and events.

        On a full disk the log cannot grow, and SQLite copies it only after a commit: without this, settle
        and purge, which free space inside of the file, would be refused too. SQLite also calls a table full
        whose largest number is taken, which only other software does.
        """
        statements = ("PRAGMA wal_checkpoint(PASSIVE)", *map(SQL.__getitem__, RENUMBER))
        for statement in statements:
            with contextlib.suppress(sqlite3.Error):
                self.connection().execute(statement)

    def _attempt(
        self, ops: Sequence[Op], write: bool, damaged: bool = False, reading: bool = False
    ) -> tuple[list[Any], list[Wake]]:
        """Run one transaction; on a full disk, `reading` answers reads although their promotions cannot be stored."""
        db = self.connection()
        cursor = db.cursor()
        execute = cursor.execute
        try:  # also around BEGIN: a KeyboardInterrupt may come between any two steps
            execute("BEGIN IMMEDIATE" if write else "BEGIN")
            # Read the clock under the lock of the file, so that order stamps follow the order of commits.
            wall = round(source.wall() * 1000)
            now = wall if type(self.clock) is SystemClock else self.now()
            tx = Transaction(db, execute, self.namespace, now, wall, write, damaged, self.format, self.fast)
            answers = [verb(tx) for verb, _ in ops]
            if write:
                if tx.effects:
                    apply_effects(tx)
                tx.before_commit()
            try:
                execute("COMMIT")
            except sqlite3.OperationalError as error:
                if not (reading and is_full(error)) or tx.must_commit:
                    raise
                _roll_back(db)
                return answers, []
        except BaseException:
            cursor.close()  # a statement whose rows could not be read would keep the lock
            _roll_back(db)
            raise
        if tx.fast_put_queue is not None:
            remember(self.fast_put_queues, *tx.fast_put_queue)
        return answers, tx.wakes

    def _retry_while_busy(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt`, with short growing pauses, while another connection holds the lock.

        SQLite's own busy timeout is not used: it pauses up to 100 ms and lets one process starve the others.
        """
        pause = FIRST_PAUSE
        while True:
            try:
                return attempt()
            except sqlite3.OperationalError as error:
                if error_code(error) not in BUSY or time.monotonic() >= self._give_up:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))
            pause = min(pause * 1.5, MAX_PAUSE)

    def _wake(self, wakes: list[Wake]) -> None:
        """Wake the waiters that a transaction chose; for those whose process is gone, choose and wake others."""
        while wakes:
            dead = self.send_wakeups(wakes, self.address, self.wake_local, self.wake_directories())
            if not dead:
                return
            again: list[Op] = [(partial(replace_dead, dead=dead, own=self.address), True)]
            with self.lock:
                self._give_up = time.monotonic() + WAKE_TIMEOUT
                try:
                    _, wakes = self._run(again, True)
                except (sqlite3.Error, PenstockError):
                    return  # only a hint: waiters also poll


def _before_fork() -> None:
    for engine in list(_engines):
        engine.lock_for_fork()
        _locked_for_fork.append(engine)


def _after_fork() -> None:
    while _locked_for_fork:
        _locked_for_fork.pop().unlock_after_fork()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)


def _version(db: sqlite3.Connection) -> int | None:
    if db.execute("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'meta'").fetchone() is None:
        return None
    row = db.execute("SELECT value FROM meta WHERE key = 'schema'").fetchone()
    return row[0] if row is not None and type(row[0]) is int else UNREADABLE_VERSION


def _run_script(db: sqlite3.Connection, script: str) -> None:
    """Run a script inside the open transaction; `executescript` would commit that first."""
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
