"""settle: running → completed / retrying / failed / cancelled / queued; fenced by the token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from penstock.model.job import State
from penstock.storage.base import Cancel, Complete, Fail, Release, Retried, Settled, Settlement, Stall
from penstock.storage.sqlite.finish import GONE_MS, finish, requeue
from penstock.storage.sqlite.ordering import promote, release_groups
from penstock.storage.sqlite.put import put
from penstock.storage.sqlite.rows import BLOCKED, COMPLETED, RUNNING, STATES, Bucket, JobRow, expiry, state_of
from penstock.storage.sqlite.transaction import QueueRow, Transaction

__all__ = ["settle"]

#: What each kind of end may have led to when it is reported a second time.
POSSIBLE_STATES: dict[type, tuple[State, ...]] = {
    Complete: (State.COMPLETED,),
    Fail: (State.FAILED, State.CANCELLED),
}

#: The letter under which an end that sends a job back is remembered.
RETURN_CODES: dict[type, str] = {Retried: "r", Release: "f", Stall: "s"}

_LOST = Settled(None, lost=True)
_COMPLETED = Settled(State.COMPLETED)

Key = tuple[str, str]
#: A row of `settle_known`: id, twin, n, place, token, worker, grp, attempts.
Row = tuple[Any, ...]


def settle(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle in order. Neighbours that simply complete are written in one step."""
    for name in {s.queue for s in settlements}:
        if queue := tx.queue(name):
            promote(tx, queue)
    answers: list[Settled] = []
    for plain, neighbours in groupby(settlements, _is_plain):
        some = list(neighbours)
        answers += _complete_all(tx, some) if plain else _settle_all(tx, some)
    return answers


def _is_plain(s: Settlement) -> bool:
    return type(s.resolution) is Complete and s.resolution.ttl != 0 and not s.resolution.then


def _complete_all(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Completions that are kept and lead to nothing: what happens in one queue is nothing to another."""
    queues: dict[str, list[Settlement]] = {}
    for s in settlements:
        queues.setdefault(s.queue, []).append(s)
    answers = {
        name: iter([_COMPLETED] * len(some) if _complete_plain(tx, name, some) else _settle_all(tx, some))
        for name, some in queues.items()
    }
    return [next(answers[s.queue]) for s in settlements]


def _complete_plain(tx: Transaction, name: str, settlements: Sequence[Settlement]) -> bool:
    """Complete runs with one statement that asks nothing first; False if one of them is not that simple."""
    queue = tx.queue(name)
    if queue is None or queue.has_groups or queue.has_blocked or tx.has_listeners:
        return False
    ttls: set[int | None] = set()
    flat: list[object] = []
    for s in settlements:
        assert type(s.resolution) is Complete
        ttls.add(s.resolution.ttl)
        flat += (s.id, s.token, s.resolution.result)
    if len(ttls) > 1:
        return False
    expires = expiry(ttls.pop(), tx.now)
    done = tx.run_with_numbered("settle_plain", (expires, tx.now), queue.finished + 1, 3, flat, queue.k)
    if done < len(settlements):
        if done:
            tx.run("settle_undo", queue.k, expires, queue.finished)
        return False
    queue.finished += done
    queue.count(RUNNING, -done)
    queue.count(COMPLETED, done)
    if queue.awaited:
        tx.finished_jobs += [(name, s.id) for s in settlements]
    return True


def _settle_all(tx: Transaction, settlements: Sequence[Settlement]) -> list[Settled]:
    """Settle in order. Completions are gathered and written together; the others one by one."""
    known = _find_running(tx, settlements)
    done = _Completions(tx)
    answers: list[Settled] = []
    for s in settlements:
        end = s.resolution
        row = known.pop((s.queue, s.id), None)
        ours = row is not None and row[4] == s.token and (end if isinstance(end, Complete) else None)
        if row and ours and not ours.then and (ours.ttl != 0 or not tx.has_waiter(s.queue, s.id)):
            done.add(s, ours, row)
            answers.append(_COMPLETED)
            continue
        done.write()
        answers.append(_settle(tx, s))
        for new in getattr(end, "then", ()):
            known.pop((new.queue, new.id), None)
    done.write()
    return answers


def _find_running(tx: Transaction, settlements: Sequence[Settlement]) -> dict[Key, Row]:
    """The rows of runs that may simply be completed: no successor waits behind them."""
    asked: dict[str, list[str]] = {}
    for s in settlements:
        if type(s.resolution) is Complete and not s.resolution.then:
            asked.setdefault(s.queue, []).append(s.id)
    known: dict[Key, Row] = {}
    for name, ids in asked.items():
        queue = tx.queue(name)
        rows = tx.run_with_list("settle_known", (queue.k,), ids) if queue else []
        known.update(((name, row[0]), row) for row in rows if row[3] == RUNNING)
        for row in rows:
            if row[1]:
                known.pop((name, row[0]), None)
    return known


class _Completions:
    """Completions that wait to be written in one go."""

    def __init__(self, tx: Transaction) -> None:
        self.tx = tx
        self.queue: QueueRow | None = None
        self.kept: list[tuple[object, ...]] = []
        self.dropped: list[int] = []
        self.gone: list[tuple[object, ...]] = []
        self.groups: list[str] = []

    def add(self, s: Settlement, end: Complete, row: Row) -> None:
        tx = self.tx
        queue = self.queue
        if queue is None or queue.name != s.queue:
            self.write()
            queue = self.queue = tx.ensure_queue(s.queue)
        _, _, n, _, _, worker, group, attempts = row
        queue.finished += 1
        queue.dirty = True
        if end.ttl == 0:
            self.dropped.append(n)
            if s.token:
                self.gone.append((queue.k, s.id, s.token, Bucket.COMPLETED, tx.now + GONE_MS))
        else:
            self.kept.append((expiry(end.ttl, tx.now), queue.finished, tx.now, end.result, n))
        tx.finished_jobs.append((s.queue, s.id))
        if tx.has_listeners:
            tx.emit("completed", queue, s.id, attempts, worker, end.result)
        if group is not None:
            self.groups.append(group)

    def write(self) -> None:
        if self.queue is not None:
            self.queue.count(RUNNING, -len(self.kept) - len(self.dropped))
            self.queue.count(COMPLETED, len(self.kept))
            if self.groups:
                release_groups(self.tx, self.queue, self.groups)
                self.groups.clear()
        if self.kept:
            self.tx.run_with_rows("settle_complete", self.kept)
            self.kept.clear()
        if self.dropped:
            self.tx.run_with_list("settle_drop", (), self.dropped)
            self.dropped.clear()
        if self.gone:
            self.tx.run_with_rows("settle_gone", self.gone)
            self.gone.clear()


def _settle(tx: Transaction, s: Settlement) -> Settled:
    queue = tx.queue(s.queue)
    if queue is None:
        return _LOST
    job = tx.job(queue, s.id)
    if job is None or job.place != RUNNING or job.token != s.token:
        return _answer_repeat(tx, queue, job, s)
    if job.cancel is not None and not isinstance(s.resolution, Complete):
        finish(tx, queue, job, Bucket.CANCELLED, s.token, job.cancel_ttl)
        return Settled(State.CANCELLED)
    match s.resolution:
        case Complete(result, ttl, then):
            finish(tx, queue, job, Bucket.COMPLETED, s.token, ttl, result=result)
            put(tx, then)
            return _COMPLETED
        case Fail(error, ttl, count, then):
            if count:
                job.timeouts += 1
                tx.emit("timed_out", queue, job.id, job.attempts, job.worker)
            finish(tx, queue, job, Bucket.FAILED, s.token, ttl, error=error)
            put(tx, then)
            return Settled(State.FAILED)
        case Cancel(ttl):
            finish(tx, queue, job, Bucket.CANCELLED, s.token, ttl)
            return Settled(State.CANCELLED)
        case Release() | Stall() | Retried():
            return _send_back(tx, queue, job, s.resolution, s.token)


def _send_back(tx: Transaction, queue: QueueRow, job: JobRow, end: Release | Stall | Retried, token: str) -> Settled:
    """running → waiting, at its place or after a backoff."""
    note, due = "retrying", tx.now
    match end:
        case Release():
            job.attempts -= 1
            note = "released"
        case Stall():
            job.stalls, job.solo = job.stalls + 1, 1
            note = "stalled"
        case Retried():
            due = _retry(tx, queue, job, end)
    job.settled = RETURN_CODES[type(end)] + token
    return Settled(state_of(requeue(tx, queue, job, note, due), tx.now))


def _retry(tx: Transaction, queue: QueueRow, job: JobRow, end: Retried) -> int:
    if end.count == "timeouts":
        job.timeouts += 1
        tx.emit("timed_out", queue, job.id, job.attempts, job.worker)
    elif end.count == "retries":
        job.retries += 1
    due = tx.now + end.delay if end.at is None else end.at
    if end.position == "due" and job.grp is None:
        job.time, job.seq = max(due, tx.now), queue.next_seq()
    job.error = end.error or None
    job.solo = int(end.solo)
    return due


def _answer_repeat(tx: Transaction, queue: QueueRow, job: JobRow | None, s: Settlement) -> Settled:
    """The same settlement again is answered as before; anything else has lost its claim."""
    ended: State | None = None
    gone = tx.one("settle_before", queue.k, s.id, s.token, tx.now)
    if gone:
        ended = STATES[gone[0]]
    elif job and job.place > BLOCKED and job.token == s.token and not job.expired(tx.now):
        ended = STATES[job.place]
    if ended in POSSIBLE_STATES.get(type(s.resolution), (State.CANCELLED,)):
        return Settled(ended)
    letter = RETURN_CODES.get(type(s.resolution))
    if job and job.waiting and letter is not None and job.settled == letter + s.token:
        return Settled(state_of(job, tx.now))
    return _LOST
